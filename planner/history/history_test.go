package history

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

var at = time.Unix(1_800_000_000, 0).UTC()

func job(queue, id string, count, gpus int) *model.Job {
	return &model.Job{Namespace: "default", Queue: queue, ID: id, Groups: []model.TaskGroup{{Name: "g", Count: count, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: gpus}}}}}
}

func TestNamePattern(t *testing.T) {
	for name, want := range map[string]string{
		"train": "train", "train-17": "train-#", "train_2026-11-29": "train-#-#-#", "bert-large-3f2a91c": "bert-large-#",
		"resnet50-lr0.01": "resnet#-lr#-#", "0a1b2c3d-aaaa-4444-bbbb-ccccdddd1111": "#-aaaa-#-bbbb-#", "nightly/run:4": "nightly-run-#", "": "", "---": "", "face": "face",
	} {
		if got := NamePattern(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// By hand: the median of 10, 12, 50 minutes is 12; they are 2, 0 and 38 off, of
// which the median is 2.
func TestPredict(t *testing.T) {
	b := new(Book)
	if _, known := b.Predict(job("ml/ada", "train-1", 4, 8)); known {
		t.Error("an empty book predicts")
	}
	for i, minutes := range []int{10, 50, 12} {
		b.Add(Ended{Job: job("ml/ada", fmt.Sprintf("train-%d", i), 4, 8), Ran: time.Duration(minutes) * time.Minute, GPUSeconds: float64(minutes * 60 * 32), Completed: true, At: at})
	}
	b.Add(Ended{Job: job("ml/ada", "train-9", 4, 8), Ran: time.Second, GPUSeconds: 32, At: at})    // it failed
	b.Add(Ended{Job: job("ml/ada", "train-10", 4, 8), Completed: true, At: at})                    // it never ran
	b.Add(Ended{Job: job("ml/bob", "train-1", 4, 8), Ran: time.Hour, Completed: true, At: at})     // another user's
	b.Add(Ended{Job: job("ml/ada", "train-4", 1, 1), Ran: 2 * time.Hour, Completed: true, At: at}) // another shape
	for name, tt := range map[string]struct {
		job  *model.Job
		want Prediction
	}{
		"alike":            {job("ml/ada", "train-77", 4, 8), Prediction{12 * time.Minute, 2 * time.Minute, 3}},
		"the other user":   {job("ml/bob", "train-77", 4, 8), Prediction{time.Hour, 0, 1}},
		"the other shape":  {job("ml/ada", "train-77", 1, 1), Prediction{2 * time.Hour, 0, 1}},
		"a shape not seen": {job("ml/ada", "train-77", 2, 8), Prediction{31 * time.Minute, 20 * time.Minute, 4}},
	} {
		if got, known := b.Predict(tt.job); !known || got != tt.want {
			t.Errorf("%s: %+v %t, want %+v", name, got, known, tt.want)
		}
	}
	if _, known := b.Predict(job("ml/ada", "eval", 4, 8)); known {
		t.Error("another name is predicted")
	}
	if diff := cmp.Diff([]float64{19200, 96000, 23040, 32, 0, 0}, b.Demands); diff != "" {
		t.Errorf("demands (-want +got):\n%s", diff)
	}
	// 50 against 10 is 4 off; 12 against the median of 10 and 50, which is 30, is
	// 0.6; 120 against 12 is 9, since only the shape differs.
	if diff := cmp.Diff([]float64{4, 0.6, 9}, b.Errors); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if part, of := b.Error(); part != 4 || of != 3 {
		t.Errorf("error %g of %d, want 4 of 3", part, of)
	}
}

// Nothing grows without bounds, and what was written is read.
func TestBounds(t *testing.T) {
	b := new(Book)
	for i := range maxPatterns + 10 {
		name := fmt.Sprintf("%c%c%c-job", 'g'+i/400, 'g'+i/20%20, 'g'+i%20)
		b.Add(Ended{Job: job("q", name, 1, 1), Ran: time.Minute, GPUSeconds: 60, Completed: true, At: at.Add(time.Duration(i) * time.Second)})
	}
	for range maxRuns + 5 {
		b.Add(Ended{Job: job("q", "x", 1, 1), Ran: time.Hour, GPUSeconds: 3600, Completed: true, At: at.Add(24 * time.Hour)})
	}
	if len(b.Patterns) > maxPatterns || len(b.Patterns) < maxPatterns-someAtATime || len(b.Demands) != maxDemands {
		t.Errorf("%d patterns, %d demands", len(b.Patterns), len(b.Demands))
	}
	if p, known := b.Predict(job("q", "x", 1, 1)); !known || p.Runs != maxRuns {
		t.Errorf("%+v %t", p, known)
	}
	if _, known := b.Predict(job("q", "ggg-job", 1, 1)); known {
		t.Error("the oldest is known still")
	}
	data, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, again); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
}

func TestPredictionIsAmongTheRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, j := new(Book), job("q", "j", 1, 1)
		least, most := int64(math.MaxInt64), int64(0)
		for range rapid.IntRange(1, maxRuns).Draw(t, "runs") {
			s := rapid.Int64Range(1, 1e6).Draw(t, "seconds")
			least, most = min(least, s), max(most, s)
			b.Add(Ended{Job: j, Ran: time.Duration(s) * time.Second, Completed: true, At: at})
		}
		p, known := b.Predict(j)
		if s := int64(p.Median / time.Second); !known || s < least || s > most || p.Spread < 0 || int64(p.Spread/time.Second) > most-least {
			t.Errorf("%+v of %d to %d seconds", p, least, most)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"patterns":{"a":{"s":[1,2],"t":3},"b":null,"c":{"s":[]}},"demands_gpu_s":[1,-1,1e300],"errors":[-1,0.5]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Decode(data)
		if err != nil {
			return
		}
		for _, d := range b.Demands {
			if !(d >= 0 && d <= model.MaxQuantity) {
				t.Errorf("demand %g", d)
			}
		}
		j := job("q", "j-1", 1, 1)
		b.Add(Ended{Job: j, Ran: time.Minute, Completed: true, At: at})
		if p, known := b.Predict(j); !known || p.Median < 0 {
			t.Errorf("%+v", p)
		}
	})
}
