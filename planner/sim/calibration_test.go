package sim

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// profiles are measured step times on nodes of four T4, from the simulator of
// Pollux (Qiao et al., OSDI'21); they are beside the source, or not there.
const profiles = "../../../shared/traces/profiles/pollux"

// measured is one step: where, of which batch on each GPU, and for how long.
type measured struct {
	gpus, nodes int
	batch, took float64
}

// readMeasured reads a table of placements: a digit for each node.
func readMeasured(t *testing.T, model string) (out []measured) {
	t.Helper()
	f, err := os.Open(filepath.Join(profiles, model+"-placements.csv"))
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
	for _, row := range rows[1:] {
		m := measured{nodes: len(row[0])}
		for _, digit := range row[0] {
			m.gpus += int(digit - '0')
		}
		m.batch, _ = strconv.ParseFloat(row[1], 64)
		m.took, _ = strconv.ParseFloat(row[2], 64)
		if m.gpus < 1 || m.batch <= 0 || m.took <= 0 {
			t.Fatalf("%s: %v", model, row)
		}
		out = append(out, m)
	}
	return out
}

// fitted are the parameters of the model of speed that suit a table: computing is
// fixed + each·batch.
type fitted struct {
	fixed, each, node, network, alpha, overlap float64
}

func (f *fitted) iteration(m measured, bytes float64) float64 {
	s := ByPlace{links: Links{Alpha: f.alpha}}
	k := Kind{Compute: f.fixed + f.each*m.batch, Bytes: bytes, Overlap: f.overlap}
	switch {
	case m.gpus == 1:
		return k.Compute
	case m.nodes == 1:
		return s.iteration(k, m.gpus, f.node)
	}
	return s.iteration(k, m.gpus, f.network)
}

// errorOf is the mean error of the logarithm.
func (f *fitted) errorOf(list []measured, bytes float64) float64 {
	sum := 0.0
	for _, m := range list {
		sum += math.Abs(math.Log(f.iteration(m, bytes) / m.took))
	}
	return sum / float64(len(list))
}

// fit searches along one parameter after the other, in steps that become smaller.
func fit(list []measured, bytes float64) fitted {
	best := fitted{fixed: 0.05, each: 0.01, node: 10, network: 2, alpha: 1e-4, overlap: 2}
	least := best.errorOf(list, bytes)
	for step := 4.0; step > 1.005; {
		before := least
		for p := range 6 {
			for _, by := range []float64{step, 1 / step} {
				next := best
				x := []*float64{&next.fixed, &next.each, &next.node, &next.network, &next.alpha, &next.overlap}[p]
				*x *= by
				next.overlap = max(1, min(next.overlap, 10))
				if e := next.errorOf(list, bytes); e < least {
					best, least = next, e
				}
			}
		}
		if least > before*0.9999 {
			step = math.Sqrt(step)
		}
	}
	return best
}

// The form of the model of speed, with parameters of its own for each of six
// networks, says how long a measured step takes to within a few per cent, and says
// so of placements that it was not fitted to. docs/simulator.md has these numbers.
func TestSpeedFitsMeasuredSteps(t *testing.T) {
	for _, tt := range []struct {
		model string
		bytes float64 // of the gradients, in GB: 4 for each parameter
		most  float64 // the largest median error that is allowed
	}{
		{"bert", 0.44, 0.05}, {"imagenet", 0.102, 0.06}, {"cifar10", 0.045, 0.06}, {"yolov3", 0.248, 0.07}, {"deepspeech2", 0.15, 0.07}, {"ncf", 0.13, 0.08},
	} {
		list := readMeasured(t, tt.model)
		var train, other []measured
		for i, m := range list {
			if i%2 == 0 || m.gpus == 1 {
				train = append(train, m)
			} else {
				other = append(other, m)
			}
		}
		f := fit(train, tt.bytes)
		var errs, spread []float64
		for _, m := range other {
			errs = append(errs, math.Abs(f.iteration(m, tt.bytes)/m.took-1))
		}
		// By how much longer four GPUs take on two or more nodes than on one.
		for _, m := range list {
			for _, o := range list {
				if m.gpus == 4 && m.nodes == 1 && o.gpus == 4 && o.nodes > 1 && o.batch == m.batch {
					spread = append(spread, o.took/m.took-1)
				}
			}
		}
		t.Logf("%s: median error %.1f%%, P90 %.1f%% of %d; four GPUs on several nodes take %+.0f%%; links %.2f and %.2f GB/s, α %.0f µs, γ %.1f",
			tt.model, 100*Quantile(errs, 0.5), 100*Quantile(errs, 0.9), len(errs), 100*Quantile(spread, 0.5), f.node, f.network, 1e6*f.alpha, f.overlap)
		if got := Quantile(errs, 0.5); got > tt.most {
			t.Errorf("%s: median error %.3f, want at most %.3f", tt.model, got, tt.most)
		}
		if f.network > f.node {
			t.Errorf("%s: the network has %.2f GB/s, a node %.2f", tt.model, f.network, f.node)
		}
	}
}

// No penalty is charged that data do not show: none inside a node, and between nodes
// less than the least of the six that were measured, on a network much slower than
// the modelled one.
func TestSpeedChargesNoMoreThanMeasured(t *testing.T) {
	c, err := Regular(512, 8)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSpeed(&c, H100NDR(DefaultOversubscription))
	one := []Piece{{Node: 0, GPUs: []int8{0, 1, 2, 3}}}
	two := []Piece{{Node: 0, GPUs: []int8{0, 1}}, {Node: 1, GPUs: []int8{0, 1}}}
	for _, class := range []string{"foundation", "finetune", "sweep", "interactive"} {
		j := &JobShape{GPUs: 4, Class: class}
		if v := s.Of(j, one); v != 1 {
			t.Errorf("%s: speed %g on one node", class, v)
		}
		penalty := 1 - s.Of(j, two)
		if t.Logf("%s: %.2f%% slower on two nodes", class, 100*penalty); penalty < 0 || penalty > 0.07 {
			t.Errorf("%s: %.3f slower on two nodes, and at least 7%% was measured", class, penalty)
		}
	}
}
