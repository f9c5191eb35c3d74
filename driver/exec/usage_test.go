package exec

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPercent(t *testing.T) {
	second := func(n float64) *time.Duration { d := time.Duration(n * float64(time.Second)); return &d }
	number := func(n float64) *float64 { return &n }
	tests := map[string]struct {
		before, now *time.Duration
		elapsed     time.Duration
		want        *float64
	}{
		"half a core":      {second(1), second(1.5), time.Second, number(50)},
		"two cores":        {second(0), second(4), 2 * time.Second, number(200)},
		"idle":             {second(1), second(1), time.Second, number(0)},
		"first":            {nil, second(1), time.Second, nil},
		"not measured":     {second(1), nil, time.Second, nil},
		"no time passed":   {second(1), second(2), 0, nil},
		"clock set back":   {second(1), second(2), -time.Second, nil},
		"less than before": {second(2), second(1), time.Second, number(0)},
	}
	for name, test := range tests {
		if diff := cmp.Diff(test.want, percent(test.before, test.now, test.elapsed)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestUsage(t *testing.T) {
	for way, change := range ways() {
		t.Run(way, func(t *testing.T) {
			spec := actor(t, "spin")
			change(t, &spec)
			w := start(t, spec)
			first, err := w.Usage()
			if err != nil {
				t.Fatal(err)
			}
			if first.Total.CPUPercent != nil || first.Total.RSSBytes == nil {
				t.Errorf("first: %+v", first.Total)
			}
			var u Usage
			eventually(t, "it uses CPU", func() bool {
				u, err = w.Usage()
				return err == nil && u.Total.CPUPercent != nil && *u.Total.CPUPercent > 1 && *u.Total.CPUUserPercent > 0
			})
			p, ok := u.Processes[w.PID()]
			if !ok || p.RSSBytes == nil || *p.RSSBytes == 0 || p.CPUPercent == nil || p.CPUTime == nil {
				t.Errorf("the process: %+v in %v", p, u.Processes)
			}
			if err := w.Kill(soon(t)); err != nil {
				t.Fatal(err)
			}
			if u, err = w.Usage(); err != nil || len(u.Processes) > 0 {
				t.Errorf("after the end: %+v, %v", u, err)
			}
		})
	}
}

func TestMemoryUsageInCgroup(t *testing.T) {
	needController(t, "memory")
	spec := shell(t, "cat /bin/sh >/dev/null; sleep 1000")
	spec.Limits.MemoryBytes = 256 << 20
	w := start(t, spec)
	eventually(t, "it is measured", func() bool {
		u, err := w.Usage()
		return err == nil && u.Total.UsageBytes != nil && *u.Total.UsageBytes > 0 && u.Total.CacheBytes != nil && u.Total.RSSBytes != nil
	})
}

func TestThrottling(t *testing.T) {
	needController(t, "cpu")
	spec := actor(t, "spin")
	spec.Limits.CPUQuota = 5000
	w := start(t, spec)
	eventually(t, "it is throttled", func() bool {
		u, err := w.Usage()
		return err == nil && u.Total.ThrottledPeriods != nil && *u.Total.ThrottledPeriods > 0 && *u.Total.ThrottledTime > 0
	})
}

func TestUnifiedCounters(t *testing.T) {
	const scope = "nomad.slice/a.t.scope"
	h := unifiedHost(t, "cpu memory", scope)
	for file, text := range map[string]string{
		"cpu.stat":            "usage_usec 3000\nuser_usec 2000\nsystem_usec 1000\nnr_periods 9\nnr_throttled 4\nthrottled_usec 500\n",
		"memory.current":      "1000\n",
		"memory.peak":         "2000\n",
		"memory.swap.current": "30\n",
		"memory.stat":         "anon 600\nfile 300\nkernel_stack 40\nslab 50\n",
		"memory.events":       "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\n",
	} {
		write(t, filepath.Join(h.unified, scope, file), text)
	}
	spec := Spec{ID: "w", CgroupParent: filepath.Join(h.unified, scope)}
	got := h.place(spec).count()
	number := func(n uint64) *uint64 { return &n }
	micro := func(n time.Duration) *time.Duration { n *= time.Microsecond; return &n }
	want := counters{
		cpu: cpuTime{user: micro(2000), system: micro(1000), total: micro(3000)}, throttledPeriods: number(4), throttledTime: micro(500),
		memory:   Sample{RSSBytes: number(600), CacheBytes: number(300), SwapBytes: number(30), KernelBytes: number(90), UsageBytes: number(1000), MaxUsageBytes: number(2000)},
		oomKills: 1,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(counters{}, cpuTime{})); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}
