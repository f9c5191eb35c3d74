package devrun

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gateway"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// interposer stands between the planner and Nomad and lets something happen
// just before Nomad learns of a job's first pins: after the planner has
// decided, and after its dry-run.
type interposer struct {
	url    string
	server *http.Server
	job    string
	// before is called once, with the pinned job.
	before func(job *api.Job) error
	once   sync.Once
	err    error
}

func interpose(nomad, job string, before func(*api.Job) error) (*interposer, error) {
	target, err := url.Parse(nomad)
	if err != nil {
		return nil, fmt.Errorf("interpose: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("interpose: %w", err)
	}
	i := &interposer{url: "http://" + l.Addr().String(), job: job, before: before}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1, // streams must not be held up
		// A request that its sender gave up is no news; others see the status.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf("forward to Nomad: %v", err), http.StatusBadGateway)
		},
	}
	i.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := i.look(r); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			gateway.Pass(proxy, w, r)
		}),
	}
	go func() { _ = i.server.Serve(l) }() // it ends when it is closed
	return i, nil
}

// look calls before if the request registers the job with pins.
func (i *interposer) look(r *http.Request) error {
	isJob := r.URL.Path == "/v1/jobs" || r.URL.Path == "/v1/job/"+i.job
	if !isJob || r.Method != http.MethodPut && r.Method != http.MethodPost {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("read registration: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var req struct{ Job *api.Job }
	if json.Unmarshal(body, &req) != nil || req.Job == nil || req.Job.ID == nil || *req.Job.ID != i.job {
		return nil // Nomad says what is wrong with it
	}
	if rewrite.IsPinned(req.Job) && !rewrite.IsGated(req.Job) {
		i.once.Do(func() { i.err = i.before(req.Job) })
		return i.err
	}
	return nil
}

func (i *interposer) stop() error {
	return i.server.Close()
}

// intruder is someone else's job, of a namespace that Caravan leaves alone: it
// takes one GPU of a node that the pinned job was to have.
func intruder(pinned *api.Job) *api.Job {
	task := api.NewTask("main", "raw_exec").
		SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", "exec sleep 3600"}).
		Require(&api.Resources{
			CPU: new(100), MemoryMB: new(64),
			Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: new(uint64(1))}},
		})
	group := api.NewTaskGroup("main", 1).AddTask(task)
	for _, g := range pinned.TaskGroups {
		for _, c := range g.Constraints {
			if strings.HasPrefix(c.LTarget, "${node.unique.") {
				group.Constrain(c)
			}
		}
		if len(group.Constraints) > 0 {
			break
		}
	}
	job := api.NewBatchJob("intruder", "intruder", "global", 50).AddDatacenter("*").AddTaskGroup(group)
	job.Namespace = new(otherTeam)
	return job
}

// intrude registers the intruder directly with Nomad and waits until it runs.
func (r *run) intrude(ctx context.Context, pinned *api.Job) error {
	r.step("intruder", "someone else's job takes a GPU between the decision and the pins")
	if _, _, err := r.cluster.Client().Jobs().Register(intruder(pinned), nil); err != nil {
		return fmt.Errorf("register the intruder: %w", err)
	}
	_, err := r.watch.await(ctx, "the intruder runs", func(t timeline) bool { return t.runningMembers("intruder") == 1 })
	return err
}
