package speed

import (
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/caravan-sched/caravan/planner/core/model"
)

var gavelKey = regexp.MustCompile(`^\('(.*)', (\d+)\)$`)

// gavelRates are steps per second by GPU model, job and GPUs, as Gavel was
// measured with; those of "…_unconsolidated" are spread over nodes.
func gavelRates(t *testing.T) map[string]map[string]map[int]float64 {
	t.Helper()
	f, err := os.Open("../../../../shared/traces/gavel/simulation_throughputs.json.gz")
	if os.IsNotExist(err) {
		t.Skipf("the public measurements are not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var raw map[string]map[string]map[string]json.RawMessage
	if err := json.NewDecoder(z).Decode(&raw); err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]map[int]float64{}
	for gpu, jobs := range raw {
		out[gpu] = map[string]map[int]float64{}
		for key, beside := range jobs {
			m := gavelKey.FindStringSubmatch(key)
			if m == nil {
				t.Fatalf("key %q", key)
			}
			n, _ := strconv.Atoi(m[2])
			var rate float64
			if err := json.Unmarshal(beside["null"], &rate); err != nil {
				t.Fatal(err)
			}
			if out[gpu][m[1]] == nil {
				out[gpu][m[1]] = map[int]float64{}
			}
			out[gpu][m[1]][n] = rate
		}
	}
	return out
}

// TestOtherModel shows what jobs do on 1 to 8 P100, together and spread over nodes,
// and on one K80, and has the rest predicted. How large the error is is told; what
// must hold is that the predictions know.
func TestOtherModel(t *testing.T) {
	rates := gavelRates(t)
	var off []float64
	twice := 0.0
	for job, one := range rates["k80"] {
		if one[8] == 0 {
			continue
		}
		s := &model.Speed{Unit: model.UnitSteps}
		for suffix, level := range map[string]Level{"": Node, "_unconsolidated": Rack} {
			for n, rate := range rates["p100"+suffix][job] {
				if n > 1 || level == Node {
					s.Samples = append(s.Samples, model.SpeedSample{Members: n, GPUs: n, Model: "P100", Level: level.String(), Rate: rate, Spread: 0.02, Count: 15})
				}
			}
		}
		s.Samples = append(s.Samples, model.SpeedSample{Members: 1, GPUs: 1, Model: "K80", Level: "node", Rate: one[1], Spread: 0.02, Count: 15})
		c := New(s, nil)
		for suffix, level := range map[string]Level{"": Node, "_unconsolidated": Rack} {
			for n, rate := range rates["k80"+suffix][job] {
				if n == 1 || rate == 0 {
					continue
				}
				e := c.At(Config{Members: n, GPUs: n, Model: "K80", Level: level})
				far := math.Abs(math.Log(e.Rate / rate))
				off = append(off, far)
				if far <= 2*e.Error {
					twice++
				}
			}
		}
	}
	slices.Sort(off)
	n := len(off)
	t.Logf("%d predictions: median error %.3f, 90 of 100 within %.3f; %.0f %% within twice the error told", n, off[n/2], off[n*9/10], 100*twice/float64(n))
	if off[n/2] > 0.25 || 100*twice/float64(n) < 80 {
		t.Error("want a median error of at most 0.25, and 80 % within twice the error told")
	}
}
