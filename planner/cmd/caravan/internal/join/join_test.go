package join

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// fake is a planner that gives its answers one after the other, and the last
// one for ever.
type fake struct {
	mu      sync.Mutex
	joins   []joinAnswer
	reports []reportAnswer
	asked   []gangapi.JoinRequest
	told    []gangapi.ReportRequest
}

type joinAnswer struct {
	after time.Duration
	gangapi.JoinAnswer
	err error
}

type reportAnswer struct {
	after time.Duration
	gangapi.ReportAnswer
	err error
}

func (f *fake) Join(ctx context.Context, r gangapi.JoinRequest) (gangapi.JoinAnswer, error) {
	f.mu.Lock()
	a := f.joins[min(len(f.asked), len(f.joins)-1)]
	f.asked = append(f.asked, r)
	f.mu.Unlock()
	if err := sleep(ctx, a.after); err != nil {
		return gangapi.JoinAnswer{}, err
	}
	return a.JoinAnswer, a.err
}

func (f *fake) Report(ctx context.Context, r gangapi.ReportRequest) (gangapi.ReportAnswer, error) {
	f.mu.Lock()
	a := f.reports[min(len(f.told), len(f.reports)-1)]
	f.told = append(f.told, r)
	f.mu.Unlock()
	if err := sleep(ctx, min(a.after, time.Duration(r.WaitMS)*time.Millisecond)); err != nil {
		return gangapi.ReportAnswer{}, err
	}
	return a.ReportAnswer, a.err
}

func options(t *testing.T) Options {
	dir := filepath.Join(t.TempDir(), "caravan")
	return Options{
		Namespace: "default", Job: "train", Group: "g", Index: 1, Alloc: "a1", Node: "n2", NodeName: "gpu-2",
		Address: "10.0.0.2", Port: 7001, Processes: 4, Dir: dir, DirInTask: "/alloc/caravan", Timeout: time.Minute,
	}
}

func membership(generation int) *rendezvous.Membership {
	return &rendezvous.Membership{
		Epoch: "e", Generation: generation, Namespace: "default", Job: "train", Min: 2, Max: 2, MasterAddr: "10.0.0.1", MasterPort: 7000,
		Members: []rendezvous.Member{
			{Group: "g", Index: 0, Alloc: "a0", Node: "n1", Address: "10.0.0.1", Processes: 4},
			{Group: "g", Index: 1, Alloc: "a1", Node: "n2", Address: "10.0.0.2", Processes: 4},
		},
	}
}

func waiting(reason string) gangapi.JoinAnswer {
	return gangapi.JoinAnswer{State: gangapi.JoinWaiting, Reason: reason}
}

var startSoon = joinAnswer{JoinAnswer: gangapi.JoinAnswer{State: gangapi.JoinStart, StartInMS: 700, Membership: membership(1)}}

func TestWait(t *testing.T) {
	unreachable := joinAnswer{err: fmt.Errorf("x: %w", gangapi.ErrUnreachable)}
	stranger := joinAnswer{err: gangapi.ErrRefusedIdentity}
	tests := map[string]struct {
		joins []joinAnswer
		err   error
		// text is a part of the error.
		text string
		told []string
		// took is how long it must take, least and most.
		took [2]time.Duration
	}{
		"at once": {joins: []joinAnswer{startSoon}, took: [2]time.Duration{700 * time.Millisecond, 700 * time.Millisecond}},
		"all come in the end": {
			joins: []joinAnswer{{30 * time.Second, waiting("1 of 2 joined"), nil}, {10 * time.Second, waiting("1 of 2 joined"), nil}, startSoon},
			told:  []string{"1 of 2 joined"}, took: [2]time.Duration{40700 * time.Millisecond, 41 * time.Second},
		},
		"a planner that does not wait is not asked all the time": {
			joins: slices.Concat(slices.Repeat([]joinAnswer{{0, waiting(""), nil}}, 5), []joinAnswer{startSoon}),
			took:  [2]time.Duration{5 * time.Second, 6 * time.Second},
		},
		"planner away for a while": {
			joins: []joinAnswer{unreachable, unreachable, unreachable, startSoon},
			told:  []string{"asking the planner again: x: planner cannot be reached"}, took: [2]time.Duration{time.Second, 6 * time.Second},
		},
		"too late": {
			joins: []joinAnswer{{0, waiting("node-7 missing"), nil}, {time.Hour, waiting(""), nil}},
			err:   ErrTimeout, text: "within 1m0s: node-7 missing", told: []string{"node-7 missing"}, took: [2]time.Duration{time.Minute, time.Minute},
		},
		"planner away for good": {
			joins: []joinAnswer{unreachable}, err: ErrTimeout, text: "planner cannot be reached",
			told: []string{"asking the planner again: x: planner cannot be reached"}, took: [2]time.Duration{time.Minute, time.Minute},
		},
		"refused": {joins: []joinAnswer{{0, gangapi.JoinAnswer{State: gangapi.JoinRefused, Reason: "there is a newer version"}, nil}}, err: ErrRefused, text: "newer version"},
		"identity refused for good": {
			joins: []joinAnswer{stranger}, err: ErrRefused, text: "identity",
			told: []string{"asking the planner again: planner refuses the workload identity"}, took: [2]time.Duration{time.Second, 20 * time.Second},
		},
		"identity refused once": {
			joins: []joinAnswer{stranger, startSoon},
			told:  []string{"asking the planner again: planner refuses the workload identity"}, took: [2]time.Duration{700 * time.Millisecond, 2 * time.Second},
		},
		"not of that gang": {
			joins: []joinAnswer{{0, gangapi.JoinAnswer{State: gangapi.JoinStart, Membership: func() *rendezvous.Membership {
				m := membership(1)
				m.Members[1].Alloc = "other"
				return m
			}()}, nil}},
			err: rendezvous.ErrNotMember,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			synctest.Test(t, func(t *testing.T) {
				f, began := &fake{joins: test.joins}, time.Now()
				var told []string
				r, err := Wait(t.Context(), o, f, func(s string) { told = append(told, s) })
				if took := time.Since(began); took < test.took[0] || took > test.took[1] {
					t.Errorf("it took %v, want %v", took, test.took)
				}
				if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) || err != nil && !strings.Contains(err.Error(), test.text) {
					t.Errorf("error %v, want %v with %q", err, test.err, test.text)
				}
				if diff := cmp.Diff(test.told, told); diff != "" {
					t.Errorf("told (-want +got):\n%s", diff)
				}
				_, missing := os.Stat(filepath.Join(o.Dir, EnvFile))
				if (missing == nil) != (err == nil) {
					t.Errorf("environment file: %v", missing)
				}
				if err == nil && (r.Env["RANK"] != "4" || r.Run == "" || f.asked[0].Run != r.Run) {
					t.Errorf("result %+v, asked %+v", r, f.asked)
				}
			})
		})
	}
}

func TestWaitWritesFiles(t *testing.T) {
	o := options(t)
	if _, err := Wait(t.Context(), o, &fake{joins: []joinAnswer{startSoon}}, func(string) {}); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(o.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	env := read(EnvFile)
	for _, want := range []string{"RANK=4\n", "WORLD_SIZE=8\n", "MASTER_ADDR=10.0.0.1\n", "CARAVAN_HOSTFILE=/alloc/caravan/hostfile\n", "CARAVAN_SOCKET=/alloc/caravan/progress.sock\n"} {
		if !strings.Contains(env, want) {
			t.Errorf("the environment has no %q:\n%s", want, env)
		}
	}
	if got := read(HostFile); got != "10.0.0.1 slots=4\n10.0.0.2 slots=4\n" {
		t.Errorf("host file %q", got)
	}
	if m, err := rendezvous.Decode([]byte(read(MembershipFile))); err != nil || m.Epoch != "e" {
		t.Errorf("membership %+v, %v", m, err)
	}

	// The next run takes everything away first: a task that does not wait for it
	// must not start with the ranks of this one.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Wait(ctx, o, &fake{joins: []joinAnswer{startSoon}}, func(string) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	if left, err := filepath.Glob(o.Dir + "/*"); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestWaitAlone(t *testing.T) {
	o := options(t)
	o.Processes, o.GPUs = 0, []string{"GPU-1", "GPU-2"}
	r, err := Wait(t.Context(), o, &fake{joins: []joinAnswer{{JoinAnswer: gangapi.JoinAnswer{State: gangapi.JoinAlone}}}}, func(string) {})
	if err != nil || r.Env["WORLD_SIZE"] != "2" || r.Env["RANK"] != "0" || r.Env["MASTER_ADDR"] != "10.0.0.2" {
		t.Errorf("environment %v, %v", r.Env, err)
	}
}

// stay runs a sidecar after a join, until the planner has had that many reports.
func stay(t *testing.T, reports []reportAnswer, enough int) (*fake, []string, error) {
	t.Helper()
	o := options(t)
	f := &fake{joins: []joinAnswer{startSoon}, reports: reports}
	var told []string
	var err error
	synctest.Test(t, func(t *testing.T) {
		r, joinErr := Wait(t.Context(), o, f, func(string) {})
		if joinErr != nil {
			t.Fatal(joinErr)
		}
		if got, ok := o.joined(); !ok || got.Run != r.Run {
			t.Fatalf("the sidecar finds %+v, %v", got, ok)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := sidecar{options: o, planner: f, tell: func(s string) { told = append(told, s) }, result: r,
			progress: func() *gangapi.Progress {
				if len(f.told) >= enough {
					cancel()
				}
				return nil
			}}
		err = s.report(ctx)
	})
	for i := range f.told {
		f.told[i].Run = ""
	}
	return f, told, err
}

func TestStay(t *testing.T) {
	order := func(kind gangapi.OrderKind, sequence int64) reportAnswer {
		return reportAnswer{ReportAnswer: gangapi.ReportAnswer{Attached: true, Order: &gangapi.Order{Sequence: sequence, Kind: kind, Reason: "rank 0 failed"}}}
	}
	quiet := reportAnswer{after: time.Hour, ReportAnswer: gangapi.ReportAnswer{Attached: true}}
	running := gangapi.ReportRequest{WaitMS: 10_000, State: gangapi.MemberRunning, Epoch: "e", Generation: 1}
	stopping := gangapi.ReportRequest{State: gangapi.MemberStopping, Epoch: "e", Generation: 1}
	changed := func(r gangapi.ReportRequest, change func(*gangapi.ReportRequest)) gangapi.ReportRequest {
		change(&r)
		return r
	}
	tests := map[string]struct {
		reports []reportAnswer
		enough  int
		err     error
		want    []gangapi.ReportRequest
		told    []string
	}{
		"stopped by Nomad":  {[]reportAnswer{quiet}, 2, nil, []gangapi.ReportRequest{running, running, running, stopping}, nil},
		"the gang fails":    {[]reportAnswer{quiet, order(gangapi.OrderFail, 1)}, 99, ErrOrdered, []gangapi.ReportRequest{running, running}, nil},
		"the gang restarts": {[]reportAnswer{order(gangapi.OrderRestart, 1)}, 99, ErrOrdered, []gangapi.ReportRequest{running}, nil},
		"an order that it cannot carry out is told once": {
			[]reportAnswer{order(gangapi.OrderSuspend, 3), order(gangapi.OrderSuspend, 3), quiet}, 3, nil,
			[]gangapi.ReportRequest{running, changed(running, func(r *gangapi.ReportRequest) { r.Seen = 3 }), changed(running, func(r *gangapi.ReportRequest) { r.Seen = 3 }),
				changed(running, func(r *gangapi.ReportRequest) { r.Seen = 3 }), changed(stopping, func(r *gangapi.ReportRequest) { r.Seen = 3 })},
			[]string{"the planner orders suspend, which takes the caravan driver: rank 0 failed"},
		},
		"planner away": {[]reportAnswer{{err: gangapi.ErrUnreachable}, {err: gangapi.ErrUnreachable}, quiet}, 2, nil, []gangapi.ReportRequest{running, running, running, stopping},
			[]string{"the planner gives no answer; going on without it: planner cannot be reached"}},
		"another size": {[]reportAnswer{{ReportAnswer: gangapi.ReportAnswer{Attached: true, Membership: membership(2)}}, quiet}, 1, nil,
			[]gangapi.ReportRequest{running, changed(running, func(r *gangapi.ReportRequest) { r.Generation = 2 }), changed(stopping, func(r *gangapi.ReportRequest) { r.Generation = 2 })},
			[]string{"the gang has 2 members now"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f, told, err := stay(t, test.reports, test.enough)
			if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
				t.Errorf("error %v, want %v", err, test.err)
			}
			if diff := cmp.Diff(test.want, f.told); diff != "" {
				t.Errorf("reports (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.told, told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
	}
}

// A sidecar passes on what the task tells on the socket, and joins by itself
// where no task has before it.
func TestStayReportsProgress(t *testing.T) {
	o := options(t)
	f := &fake{joins: []joinAnswer{startSoon}, reports: []reportAnswer{{ReportAnswer: gangapi.ReportAnswer{Attached: true}}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- Stay(ctx, o, f, func(s string) { t.Log(s) }) }()
	sent := false
	for {
		f.mu.Lock()
		n := len(f.told)
		done := n > 0 && f.told[n-1].Progress != nil
		f.mu.Unlock()
		if done || ctx.Err() != nil {
			break
		}
		if !sent && n > 0 {
			sent = send(t, filepath.Join(o.Dir, SocketFile), "step 5\n")
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	last := f.told[len(f.told)-1]
	if last.Progress == nil || *last.Progress.Step != 5 || last.State != gangapi.MemberStopping || last.Run != f.asked[0].Run {
		t.Errorf("last report %+v", last)
	}
}

// A place too deep in the file system has its socket elsewhere, where both the
// task and the sidecar find it.
func TestLongSocketPath(t *testing.T) {
	o := options(t)
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), strings.Repeat("y", 100)))
	o.Dir = filepath.Join(o.Dir, strings.Repeat("x", 100))
	o.DirInTask = o.Dir
	r, err := Wait(t.Context(), o, &fake{joins: []joinAnswer{startSoon}}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := o.joined(); !ok || got.Socket != r.Socket || r.Env["CARAVAN_SOCKET"] != r.Socket || len(r.Socket) > maxSocketPath {
		t.Errorf("the sidecar listens at %q, the task is told %q; believed: %v", got.Socket, r.Env["CARAVAN_SOCKET"], ok)
	}
	f := &fake{reports: []reportAnswer{{ReportAnswer: gangapi.ReportAnswer{Attached: true}}}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Stay(ctx, o, f, func(s string) { t.Error(s) }) }()
	for deadline := time.Now().Add(time.Minute); !send(t, r.Socket, "step 5\n"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the sidecar does not listen")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(r.Socket)); !os.IsNotExist(err) {
		t.Errorf("the socket's directory is left: %v", err)
	}
}

// What lies in the directory is believed only if it is this allocation's.
func TestJoinedIsOwn(t *testing.T) {
	elsewhere, err := json.Marshal(Result{Run: "r", Alloc: "a1", Membership: *membership(1), Socket: "/run/other/" + SocketFile})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"garbage": "{", "another allocation's": `{"alloc":"a0","run":"r"}`, "no membership": `{"alloc":"a1","run":"r"}`,
		"led elsewhere": string(elsewhere),
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			if err := o.clear(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(o.Dir, stateFile), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if r, ok := o.joined(); ok {
				t.Errorf("it was believed: %+v", r)
			}
		})
	}
}

func send(t *testing.T, socket, text string) bool {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return true
}
