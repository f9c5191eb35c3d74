package driver

import (
	"encoding/json"
	"fmt"
	osexec "os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caravan-sched/caravan/driver/container/containertest"
	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// podRig is a plugin on a host with a podman that works.
type podRig struct {
	*rig
	podman string
	// args are what this podman needs on this host.
	args []string

	mu   sync.Mutex
	told map[string][]driver.Event
}

func newPodRig(t *testing.T) *podRig {
	path, args := containertest.Podman(t)
	r := &podRig{rig: newRig(t, "runtimes = [\"podman\"]", "allow_runtime_args = true"), podman: path, args: args, told: map[string][]driver.Event{}}
	r.listen()
	return r
}

// listen keeps the events of all tasks; another time after another launch.
func (r *podRig) listen() {
	client := r.Client
	go func() {
		// It ends with the plugin.
		_ = client.Events(r.t.Context(), func(e driver.Event) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.told[e.TaskID] = append(r.told[e.TaskID], e)
			return nil
		})
	}()
}

// hears waits for an event of the kind with the words.
func (r *podRig) hears(id, kind, words string) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("event %s with %q", kind, words), func() (bool, any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.ContainsFunc(r.told[id], func(e driver.Event) bool {
			return e.Annotations["kind"] == kind && strings.Contains(e.Message, words)
		}), r.told[id]
	})
}

// pod is a task in a container that runs the image's program with the words, or
// another one where the first is a path; change may add to it.
func (r *podRig) pod(name string, command []string, change func(*driver.TaskConfig), more ...string) driver.TaskConfig {
	r.t.Helper()
	list := func(words []string) string {
		text, err := json.Marshal(words)
		if err != nil {
			r.t.Fatal(err)
		}
		return string(text)
	}
	entrypoint := "/program"
	if strings.HasPrefix(command[0], "/") {
		entrypoint, command = command[0], command[1:]
	}
	hcl := fmt.Sprintf("image = %q\nentrypoint = [%q]\nargs = %s\n", containertest.Image, entrypoint, list(command))
	hcl += "ulimit {\n"
	for key, value := range containertest.Ulimits() {
		hcl += fmt.Sprintf("%s = %q\n", key, value)
	}
	hcl += "}\n" + strings.Join(more, "\n")
	if len(r.args) > 0 {
		hcl += "\nruntime_args = " + list(r.args)
	}
	t := r.task(name, hcl)
	t.Env["CARAVAN_LINES"] = "one\ntwo = 2\n"
	t.Env["ODD"] = "a b # c $HOME \"quoted\""
	if change != nil {
		change(&t)
	}
	return t
}

func (r *podRig) run(t driver.TaskConfig) driver.Handle {
	r.t.Helper()
	h, _, err := r.Start(r.t.Context(), t)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// ask is what podman says.
func (r *podRig) ask(args ...string) string {
	r.t.Helper()
	out, err := osexec.Command(r.podman, args...).Output()
	if err != nil {
		r.t.Errorf("podman %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

func containerName(t driver.TaskConfig) string { return "caravan-" + dirName(t.ID) }

// gone waits until a task's container is no more.
func (r *podRig) gone(t driver.TaskConfig) {
	r.t.Helper()
	r.eventually("end of the container", func() (bool, any) {
		left := r.ask("ps", "--all", "--noheading", "--filter", "name="+containerName(t))
		return left == "", left
	})
}

// orders makes the planner tell a member something, once.
func (r *podRig) orders(t driver.TaskConfig, o gangapi.Order) {
	r.planner.set(func() {
		r.planner.order = func(alloc string, q gangapi.ReportRequest) gangapi.ReportAnswer {
			if alloc == t.AllocID && q.Seen < o.Sequence {
				return gangapi.ReportAnswer{Attached: true, Order: &o}
			}
			return gangapi.ReportAnswer{Attached: true}
		}
	})
}

func (r *podRig) phase(t driver.TaskConfig, want string) {
	r.t.Helper()
	r.eventually("phase "+want, func() (bool, any) {
		s, err := r.Inspect(r.t.Context(), t.ID)
		return err == nil && s.Attributes["phase"] == want, s.Attributes
	})
}
