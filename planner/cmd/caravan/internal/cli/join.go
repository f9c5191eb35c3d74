package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/join"
	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

const joinLong = `Join waits until every member of the job's gang has come, and then ends with exit
code 0 on all of them at once, so that what follows starts together. It is meant
for a prestart task beside a task of any driver (the caravan driver does the same
by itself). It leaves in DIR, by default $NOMAD_ALLOC_DIR/caravan:

  env                  ranks, addresses and host files as variables, for a shell:
                       set -a; . "$NOMAD_ALLOC_DIR/caravan/env"; exec train
  membership.json      who is in the gang
  hostfile             for Open MPI, hostfile.deepspeed for DeepSpeed

When the gang does not come together in time, or the planner refuses the member,
the exit code is 1, and Nomad's restart rules apply.

With --sidecar it goes on after the barrier, in the same task or in a second one:
it takes progress from DIR/progress.sock, tells the planner of it, and ends with
exit code 1, and so takes the allocation with it, when the gang fails.

Each flag's default is the variable after it, or what Nomad gives to every task.
The task needs an identity block:  identity { name = "caravan" aud = ["caravan"] file = true ttl = "1h" }`

// joinFlags are the command line's.
type joinFlags struct {
	planners                 []string
	cert, key, serverName    string
	identity, dir, dirInTask string
	member, portLabel        string
	port, processes          string
	iface, timeout           string
	sidecar                  bool
	checkpoints              []string
}

func (a *app) joinCommand() *cobra.Command {
	var j joinFlags
	cmd := &cobra.Command{
		Use:     "join",
		Short:   "Wait for a gang from inside a task",
		Long:    joinLong,
		Example: "  caravan join --processes 8\n  caravan join --sidecar --checkpoint /data/ckpt",
		Args:    args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.join(cmd, j)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&j.planners, "planner", nil, "a planner's `URL`, several times for several (CARAVAN_PLANNERS, with commas)")
	f.StringVar(&j.cert, "cert", "", "`file` with a certificate to show to the planner (CARAVAN_CLIENT_CERT)")
	f.StringVar(&j.key, "key", "", "`file` with its key (CARAVAN_CLIENT_KEY)")
	f.StringVar(&j.serverName, "server-name", "", "`name` in the planner's certificate (CARAVAN_TLS_SERVER_NAME)")
	f.StringVar(&j.identity, "identity", "", "`file` with the workload identity (CARAVAN_IDENTITY)")
	f.StringVar(&j.timeout, "timeout", "", "how `long` to wait for the gang; 10m (CARAVAN_JOIN_TIMEOUT)")
	f.StringVar(&j.dir, "dir", "", "`directory` for the files (CARAVAN_DIR)")
	f.StringVar(&j.dirInTask, "dir-in-task", "", "its `path` in the task that reads the files, /alloc/caravan in a container (CARAVAN_DIR_IN_TASK)")
	f.StringVar(&j.member, "member-address", "", "the `IP` address that the others reach the task by (CARAVAN_MEMBER_ADDRESS)")
	f.StringVar(&j.port, "port", "", "`port` to meet at, should the member be rank 0 (CARAVAN_PORT)")
	f.StringVar(&j.portLabel, "port-label", "", "`label` of the group's port that gives both; rendezvous (CARAVAN_PORT_LABEL)")
	f.StringVar(&j.processes, "processes", "", "how `many` ranks the member has; 0: one for each GPU (CARAVAN_PROCESSES)")
	f.StringVar(&j.iface, "interface", "", "network `interface` for NCCL and the like (CARAVAN_INTERFACE)")
	f.BoolVar(&j.sidecar, "sidecar", false, "report after the barrier, until stopped")
	f.StringArrayVar(&j.checkpoints, "checkpoint", nil, "file, directory or `pattern` that checkpoints are seen by, with --sidecar (CARAVAN_CHECKPOINTS, with colons)")
	return cmd
}

func (a *app) join(cmd *cobra.Command, j joinFlags) error {
	j.planners = orList(j.planners, a.getenv("CARAVAN_PLANNERS"), ",")
	if len(j.planners) == 0 {
		j.planners = []string{a.plannerAddress()}
	}
	options, err := a.joinOptions(j)
	if err != nil {
		return err
	}
	identity := firstOf(j.identity, a.getenv("CARAVAN_IDENTITY"))
	if identity == "" {
		identity = filepath.Join(a.getenv("NOMAD_SECRETS_DIR"), "nomad_"+gangapi.IdentityName+".jwt")
	}
	client, err := gangapi.NewClient(gangapi.Config{
		Addresses: j.planners, CAFile: firstOf(a.caCert, a.getenv("CARAVAN_CACERT")),
		CertFile: firstOf(j.cert, a.getenv("CARAVAN_CLIENT_CERT")), KeyFile: firstOf(j.key, a.getenv("CARAVAN_CLIENT_KEY")),
		ServerName: firstOf(j.serverName, a.getenv("CARAVAN_TLS_SERVER_NAME")), IdentityFile: identity,
	})
	if err != nil {
		return usage("%w", err)
	}
	defer client.Close()
	tell := func(text string) { fmt.Fprintln(a.env.Stderr, text) }
	if j.sidecar {
		return join.Stay(cmd.Context(), options, client, tell)
	}
	r, err := join.Wait(cmd.Context(), options, client, tell)
	if err != nil {
		return err
	}
	return a.print(r, func(w io.Writer, _ render.Style) error {
		_, err := fmt.Fprintf(w, "rank %s of %s, node %s of %s: %s\n", r.Env["RANK"], r.Env["WORLD_SIZE"], r.Env["NODE_RANK"], r.Env["NNODES"], filepath.Join(options.Dir, join.EnvFile))
		return err
	})
}

// orList is a list of flags, or else the variable's, taken apart.
func orList(flags []string, variable, separator string) []string {
	if len(flags) > 0 || variable == "" {
		return flags
	}
	return strings.Split(variable, separator)
}

// joinOptions puts together what flags and environment say, and reports all
// that is wrong with it.
func (a *app) joinOptions(j joinFlags) (join.Options, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	number := func(name, text string, most int) int {
		if text == "" {
			return 0
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > most {
			fault("%s %q: a number from 0 to %d", name, text, most)
			return 0
		}
		return n
	}
	o := join.Options{
		Namespace: firstOf(a.getenv("NOMAD_NAMESPACE"), "default"), Job: a.getenv("NOMAD_JOB_ID"), Group: a.getenv("NOMAD_GROUP_NAME"),
		Index: number("NOMAD_ALLOC_INDEX", a.getenv("NOMAD_ALLOC_INDEX"), 1<<31-1), Alloc: a.getenv("NOMAD_ALLOC_ID"),
		Interface: firstOf(j.iface, a.getenv("CARAVAN_INTERFACE")), Dir: firstOf(j.dir, a.getenv("CARAVAN_DIR")),
		GPUs:        gpuList(firstOf(a.getenv("CARAVAN_GPU_SLICE"), a.getenv("NVIDIA_VISIBLE_DEVICES"))),
		Processes:   number("--processes", firstOf(j.processes, a.getenv("CARAVAN_PROCESSES")), 4096),
		Port:        number("--port", firstOf(j.port, a.getenv("CARAVAN_PORT")), 65535),
		Checkpoints: orList(j.checkpoints, a.getenv("CARAVAN_CHECKPOINTS"), ":"),
	}
	// Nomad tells a task neither its node's ID nor, always, its name.
	o.Node, o.NodeName = firstOf(a.getenv("NOMAD_NODE_ID"), "unknown"), a.getenv("NOMAD_NODE_NAME")
	for _, v := range []struct{ name, value string }{{"NOMAD_ALLOC_ID", o.Alloc}, {"NOMAD_JOB_ID", o.Job}, {"NOMAD_GROUP_NAME", o.Group}} {
		if v.value == "" {
			fault("%s is not set: caravan join runs in a Nomad task", v.name)
		}
	}
	if o.Dir == "" {
		if o.Dir = filepath.Join(a.getenv("NOMAD_ALLOC_DIR"), "caravan"); a.getenv("NOMAD_ALLOC_DIR") == "" {
			fault("--dir: name the directory for the files; NOMAD_ALLOC_DIR is not set")
		}
	}
	o.DirInTask = firstOf(j.dirInTask, a.getenv("CARAVAN_DIR_IN_TASK"), o.Dir)
	timeout := firstOf(j.timeout, a.getenv("CARAVAN_JOIN_TIMEOUT"), "10m")
	var err error
	if o.Timeout, err = time.ParseDuration(timeout); err != nil || o.Timeout <= 0 {
		fault("--timeout %q: a duration above 0, such as 10m", timeout)
	}
	if err := a.meetingPoint(&o, j); err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return o, usage("%w", errors.Join(faults...))
	}
	return o, nil
}

// gpuList takes the device plugin's variable apart, which may hold words too.
func gpuList(text string) []string {
	switch text {
	case "", "all", "none", "void":
		return nil
	}
	return strings.Split(text, ",")
}

// meetingPoint finds out where the others reach the task: by flag, by the
// group's port of that label, or at this host's address on the way to the
// planner, on a port that is free now.
func (a *app) meetingPoint(o *join.Options, j joinFlags) error {
	label := firstOf(j.portLabel, a.getenv("CARAVAN_PORT_LABEL"), "rendezvous")
	o.Address = firstOf(j.member, a.getenv("CARAVAN_MEMBER_ADDRESS"), a.getenv("NOMAD_HOST_IP_"+label), a.getenv("NOMAD_IP_"+label))
	if o.Port == 0 {
		if text := firstOf(a.getenv("NOMAD_HOST_PORT_"+label), a.getenv("NOMAD_PORT_"+label)); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > 65535 {
				return fmt.Errorf("the port %q of the label %q: a number from 1 to 65535", text, label)
			}
			o.Port = n
		}
	}
	if o.Address == "" {
		o.Address = routeTo(firstOf(append(j.planners, httpapi.DefaultAddress)...))
	}
	if ip, err := netip.ParseAddr(o.Address); err != nil || ip.IsUnspecified() {
		return fmt.Errorf("--member-address %q: the IP address of this host", o.Address)
	}
	if o.Port != 0 {
		return nil
	}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	o.Port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	return nil
}

// routeTo is this host's address on the way to a URL's host. Nothing is sent.
func routeTo(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	conn, err := net.Dial("udp", net.JoinHostPort(u.Hostname(), "9"))
	if err != nil {
		return "127.0.0.1"
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().String()
}
