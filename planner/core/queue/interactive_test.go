package queue

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestInteractive(t *testing.T) {
	i := Interactive{Classes: []string{"interactive"}, Queues: []string{"dev"}, MaxGPUs: 2}
	groups := func(count, most, gpus int) []model.TaskGroup {
		return []model.TaskGroup{{Name: "g", Count: count, Max: most, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: gpus}}}}
	}
	for name, tt := range map[string]struct {
		job  model.Job
		want bool
	}{
		"class":                {model.Job{PriorityClass: "interactive", Groups: groups(1, 0, 2)}, true},
		"queue":                {model.Job{Queue: "dev", Groups: groups(1, 0, 1)}, true},
		"below the queue":      {model.Job{Queue: "dev/ada", Groups: groups(1, 0, 1)}, true},
		"beside the queue":     {model.Job{Queue: "devel", Groups: groups(1, 0, 1)}, false},
		"another class":        {model.Job{PriorityClass: "batch", Groups: groups(1, 0, 1)}, false},
		"too many GPUs":        {model.Job{Queue: "dev", Groups: groups(3, 0, 1)}, false},
		"may grow to too many": {model.Job{Queue: "dev", Groups: groups(1, 3, 1)}, false},
	} {
		if got := i.Is(&tt.job); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if none := (&Interactive{}); none.Any() || none.Is(&model.Job{PriorityClass: ""}) {
		t.Error("without classes or queues something is interactive")
	}
	ran := &model.Job{Queue: "dev", Started: start}
	if !i.Protects(ran, start.Add(DefaultInteractiveRun-1)) || i.Protects(ran, start.Add(DefaultInteractiveRun)) {
		t.Error("not protected for its time")
	}
}

func TestInteractiveFaults(t *testing.T) {
	err := Interactive{Classes: []string{" "}, Queues: []string{"a//b"}, MaxGPUs: -1, MaxRun: -time.Second}.Validate()
	if !errors.Is(err, ErrPolicy) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{`interactive.classes[0] " "`, `interactive.queues[0] "a//b"`, "interactive.max_gpus -1: want 0 to 64", "interactive.max_run -1s"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	if err := (Interactive{}).WithDefaults().Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
}
