package devrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devcluster/reaper"
)

// scenarioTime is the most that a scenario may take; startTime the cluster.
const (
	startTime    = 5 * time.Minute
	scenarioTime = 6 * time.Minute
)

// Options say what to run.
type Options struct {
	// Scenario is one of Scenarios; "" is ScenarioGang.
	Scenario string
	// Once ends the run after the scenario; otherwise the cluster stays up
	// until the context ends.
	Once bool
	// JSON prints the report as one JSON object when the scenario has ended,
	// and nothing else; otherwise Out shows each step as it happens.
	JSON bool
	Out  io.Writer
	// Backend is devcluster.BackendDevNomad or BackendNomad; "" is Nomad where
	// it is installed.
	Backend string
	// Plugin is the device plugin's binary; "" looks beside this program and on
	// the PATH.
	Plugin string
	// Driver is the task driver's binary, looked for likewise. Scenarios that do
	// not use it can do without.
	Driver string
	// Log receives the log lines of the cluster and the planner; nil drops them.
	Log func(line string)
}

// ErrChecks says that the scenario came to its end and not every check held.
var ErrChecks = errors.New("not every check held")

// run is a run in progress.
type run struct {
	opts     Options
	scenario scenario
	// dir is for the few files that the cluster reads.
	dir     string
	began   time.Time
	show    *shower
	cluster devcluster.Cluster
	// far is the other region, where there is one.
	far     *farRegion
	planner *planner
	// cloud is where nodes are bought, where they are.
	cloud  *cloud
	tokens tokens
	watch  *watcher
	race   *interposer
	// learn guards islands and nodes while the run goes on: they are shown as events
	// come, and grow with nodes that join.
	learn   sync.Mutex
	islands islandMap
	nodes   map[string]string // names by ID
	jobs    []*submitted
	report  Report
}

// submitted is a job that the scenario submitted.
type submitted struct {
	name    string
	members int
	// most is how many members an elastic gang may come to have; 0 is members.
	most int
	// least is how few an elastic gang may run on with; 0 is members.
	least int
	at    time.Duration
	// judged: how it ran is in the report.
	judged bool
	// alone: its members are no gang.
	alone bool
	// far: it runs in the other region.
	far bool
}

// Run plays the scenario and returns its report. The error says why it did not
// come to its end, or is ErrChecks; the report is of use either way. Nothing is
// left running.
func Run(ctx context.Context, opts Options) (Report, error) {
	if opts.Out == nil {
		opts.Out = io.Discard
	}
	if opts.Scenario == "" {
		opts.Scenario = ScenarioGang
	}
	r := &run{opts: opts, began: time.Now(), report: Report{Scenario: opts.Scenario, Backend: backendOf(opts)}}
	r.show = &shower{out: opts.Out, began: r.began, quiet: opts.JSON}
	var ok bool
	if r.scenario, ok = scenarios[opts.Scenario]; !ok {
		return r.report, fmt.Errorf("scenario %q; allowed are %s", opts.Scenario, strings.Join(Scenarios(), ", "))
	}
	err := r.all(ctx)
	return r.report, err
}

// all runs from the first process to the last.
func (r *run) all(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "caravan-dev-")
	if err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	cleaner, err := reaper.Start(dir, dir)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir), cleaner.Dismiss()) }()
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatching()
	// Taken down in this order: what watches, the planner, the cluster.
	defer func() {
		stopWatching()
		err = errors.Join(err, r.stop())
	}()
	r.dir = dir
	err = r.start(ctx, watching, dir)
	if err == nil {
		playing, done := context.WithTimeoutCause(ctx, scenarioTime, fmt.Errorf("the scenario took longer than %v", scenarioTime))
		err = r.scenario.play(r, playing)
		if err == nil {
			err = r.judge(playing)
		}
		done()
	}
	r.report.finish(err)
	if err := r.tell(); err != nil {
		return err
	}
	if err == nil && !r.report.OK {
		err = ErrChecks
	}
	if err == nil && !r.opts.Once {
		r.show.tryIt(r.report.Addresses)
		<-ctx.Done()
	}
	return err
}

func (r *run) start(ctx, watching context.Context, dir string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("the start took longer than %v", startTime))
	defer cancel()
	var err error
	r.step("cluster", fmt.Sprintf("starting %d nodes with %d simulated GPUs each, in 2 racks", len(nodeNames), gpusPerNode))
	// The task driver is told where the planner is before that is there.
	find := anyPort
	if !r.opts.Once {
		find = defaultPort
	}
	port, err := find()
	if err != nil {
		return err
	}
	if r.cluster, err = startCluster(ctx, r.opts, r.scenario, dir, port); err != nil {
		return err
	}
	r.report.Backend, r.report.NomadVersion = r.cluster.Backend(), r.cluster.Version()
	r.report.Addresses.Nomad = r.cluster.Address()
	r.step("cluster", fmt.Sprintf("ready: %s %s at %s", r.cluster.Backend(), r.cluster.Version(), r.cluster.Address()))
	if r.islands, r.nodes, err = readNodes(r.cluster.Client()); err != nil {
		return err
	}
	if r.scenario.federated {
		if err := r.startFar(ctx, watching, dir, port); err != nil {
			return err
		}
	}
	// First: an event stream shows the namespaces that were there at its start.
	if _, err := r.cluster.Client().Namespaces().Register(&api.Namespace{Name: otherTeam}, nil); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	if r.watch, err = watch(watching, r.cluster.Client(), r.began, r.saw); err != nil {
		return err
	}
	nomadURL := r.cluster.Address()
	if r.scenario.race {
		r.race, err = interpose(nomadURL, trainGang, func(pinned *api.Job) error { return r.intrude(watching, pinned) })
		if err != nil {
			return err
		}
		nomadURL = r.race.url
	}
	if err := r.makeTokens(); err != nil {
		return err
	}
	server, err := url.Parse(r.cluster.Address())
	if err != nil {
		return fmt.Errorf("read the server's address: %w", err)
	}
	listen := net.JoinHostPort(server.Hostname(), port)
	if r.planner, err = startPlanner(ctx, r.tokens, nomadURL, listen, r.scenario.configure, r.plannerLog()); err != nil {
		return err
	}
	r.report.Addresses.Caravan = r.planner.address
	r.step("planner", "leads; the gateway is at "+r.planner.address)
	return nil
}

func (r *run) plannerLog() hclog.Logger {
	if r.opts.Log == nil {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Name: "planner", Output: lineWriter(r.opts.Log), Level: hclog.Debug})
}

type lineWriter func(string)

// Write implements io.Writer for a logger, which writes whole lines.
func (f lineWriter) Write(p []byte) (int, error) {
	f(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

func (r *run) stop() error {
	var errs []error
	if r.cloud != nil {
		errs = append(errs, r.cloud.stop())
	}
	if r.planner != nil {
		errs = append(errs, r.planner.stop())
	}
	if r.race != nil {
		errs = append(errs, r.race.stop())
	}
	if r.far != nil {
		errs = append(errs, r.far.cluster.Stop())
	}
	if r.cluster != nil {
		errs = append(errs, r.cluster.Stop())
	}
	return errors.Join(errs...)
}

// tell prints the report.
func (r *run) tell() error {
	if r.opts.JSON {
		return r.report.writeJSON(r.opts.Out)
	}
	r.show.report(&r.report, r.nodes)
	return r.show.err()
}

func (r *run) step(subject, text string) { r.show.step(time.Since(r.began), subject, text) }

// saw shows what the event stream shows, as far as it is about the scenario.
func (r *run) saw(s sighting) {
	r.learn.Lock()
	defer r.learn.Unlock()
	r.show.sighting(s, r.nodes, r.islands)
}

// learnNodes learns of nodes that have joined.
func (r *run) learnNodes(client *api.Client) error {
	islands, nodes, err := readNodes(client)
	if err != nil {
		return err
	}
	r.learn.Lock()
	defer r.learn.Unlock()
	maps.Copy(r.nodes, nodes)
	maps.Copy(r.islands.of, islands.of)
	maps.Copy(r.islands.size, islands.size)
	return nil
}
