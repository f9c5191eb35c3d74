package speed

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/planner/core/model"
)

const profiles = "../../../../shared/traces/profiles/"

// profileNames are the jobs that Pollux was measured with.
var profileNames = []string{"bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"}

func readTable(t testing.TB, path string) []map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		t.Skipf("the public profiles are not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]string
	for _, row := range rows[1:] {
		m := map[string]string{}
		for i, key := range rows[0] {
			m[key] = row[i]
		}
		out = append(out, m)
	}
	return out
}

func number(t testing.TB, text string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// polluxPoints are the measured step times of a job: those of up to four nodes
// with four GPUs, and if wide those of many nodes with one each.
func polluxPoints(t testing.TB, name string, wide bool) []point {
	t.Helper()
	times := map[point][]float64{}
	add := func(p point, batch, seconds string) {
		p.batch, p.err = number(t, batch)*p.width, 0.05
		times[p] = append(times[p], math.Log(number(t, seconds)))
	}
	for _, row := range readTable(t, filepath.Join(profiles, "pollux", name+"-placements.csv")) {
		p := point{level: Node}
		for _, c := range row["placement"] {
			p.width += float64(c - '0')
		}
		if len(row["placement"]) > 1 {
			p.level = Rack
		}
		add(p, row["local_bsz"], row["step_time"])
	}
	if wide {
		for _, row := range readTable(t, filepath.Join(profiles, "pollux", name+"-scalability.csv")) {
			add(point{level: Rack, width: number(t, row["num_replicas"])}, row["local_bsz"], row["step_time"])
		}
	}
	var out []point
	for p, all := range times {
		slices.Sort(all)
		p.log = all[len(all)/2]
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b point) int {
		return slices.Compare([]float64{a.width, float64(a.level), a.batch}, []float64{b.width, float64(b.level), b.batch})
	})
	return out
}

// elasticflowPoints are by file and batch size.
func elasticflowPoints(t testing.TB) map[string][]point {
	t.Helper()
	files, err := filepath.Glob(profiles + "elasticflow/*.csv")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]point{}
	for _, file := range files {
		for _, row := range readTable(t, file) {
			name := strings.TrimSuffix(filepath.Base(file), ".csv") + "/" + row["global_batch_size"]
			for _, gpus := range []string{"1", "2", "4", "8", "16", "32", "64"} {
				if row[gpus] == "" || row[gpus] == "nan" || row[gpus] == "0" {
					continue
				}
				p := point{width: number(t, gpus), batch: 1, level: Node, err: 0.05, log: -math.Log(number(t, row[gpus]))}
				if p.width > 8 || strings.HasPrefix(name, "T4") && p.width > 4 {
					p.level = Rack
				}
				out[name] = append(out[name], p)
			}
		}
	}
	return out
}

func tiersOf(points []point) []Level {
	var tiers []Level
	for _, p := range points {
		if p.width > 1 && !slices.Contains(tiers, p.level) {
			tiers = append(tiers, p.level)
		}
	}
	slices.Sort(tiers)
	return tiers
}

// relativeErrors are those of the predicted times, ascending.
func relativeErrors(f *fitted, points []point) []float64 {
	var out []float64
	for i := range points {
		all, _, _ := f.seconds(&points[i])
		out = append(out, math.Abs(all/math.Exp(points[i].log)-1))
	}
	slices.Sort(out)
	return out
}

// TestFitProfiles fits what Pollux was measured with, on up to 64 GPUs. The
// bounds are what the fits reach and some more; the order of magnitude
// is that of Pollux, figure 3.
func TestFitProfiles(t *testing.T) {
	tests := map[string]struct{ optimus, pollux, ring float64 }{
		"bert": {0.06, 0.04, 0.04}, "cifar10": {0.11, 0.05, 0.06}, "deepspeech2": {0.09, 0.07, 0.06},
		"imagenet": {0.08, 0.05, 0.07}, "ncf": {0.07, 0.06, 0.09}, "yolov3": {0.08, 0.08, 0.07},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			points := polluxPoints(t, name, true)
			tiers := tiersOf(points)
			for _, form := range []struct {
				form
				most float64
			}{{optimus(tiers), want.optimus}, {pollux(tiers), want.pollux}, {ring(tiers), want.ring}} {
				f := form.fit(points, []float64{1})
				e := relativeErrors(f, points)
				median := e[len(e)/2]
				t.Logf("%s: %d points, median error %.3f, 90 of 100 within %.3f, γ = %v", form.name, len(points), median, e[len(e)*9/10], f.power)
				if median > form.most {
					t.Errorf("%s: median error %.3f, want at most %.3f", form.name, median, form.most)
				}
			}
		})
	}
}

// TestFitThroughputs fits what ElasticFlow was measured with, one curve after
// the other, by the form that is chosen.
func TestFitThroughputs(t *testing.T) {
	var medians, worst []float64
	for name, points := range elasticflowPoints(t) {
		l := &learned{points: points, models: []string{""}, unit: model.UnitSteps, narrowest: 1, widest: points[len(points)-1].width}
		l.shape(nil, nil)
		e := relativeErrors(l.fit, points)
		t.Logf("%s: %s, median error %.3f, worst %.3f", name, l.fit.form.name, e[len(e)/2], e[len(e)-1])
		medians, worst = append(medians, e[len(e)/2]), append(worst, e[len(e)-1])
	}
	slices.Sort(medians)
	slices.Sort(worst)
	if got := medians[len(medians)/2]; got > 0.03 {
		t.Errorf("the median of the curves' median errors is %.3f, want at most 0.03", got)
	}
	if got := worst[len(worst)*9/10]; got > 0.25 {
		t.Errorf("the worst point of nine curves of ten is off by %.3f, want at most 0.25", got)
	}
}

func BenchmarkFit(b *testing.B) {
	points := polluxPoints(b, "imagenet", true)
	var few []point
	for i := range points {
		if i%4 == 0 {
			few = append(few, points[i])
		}
	}
	tiers := tiersOf(few)
	for b.Loop() {
		pollux(tiers).fit(few, []float64{1})
	}
}
