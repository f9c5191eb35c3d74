package place

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// shapeOf reads a link matrix as nvidia-smi prints it, without the header.
// GPUs joined by NV# are in one island.
func shapeOf(t testing.TB, matrix string) *topo.Shape {
	t.Helper()
	n := model.Node{ID: "n"}
	for line := range strings.Lines(matrix) {
		var row []model.Link
		for _, kind := range strings.Fields(line) {
			row = append(row, model.Link{Kind: kind})
		}
		if len(row) == 0 {
			continue
		}
		i := len(n.GPUs)
		island := i
		for j := range i {
			if strings.HasPrefix(row[j].Kind, "NV") {
				island = min(island, n.GPUs[j].Island)
			}
		}
		n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprint(i), Island: island})
		n.Links = append(n.Links, row)
	}
	s := &model.Snapshot{Nodes: []model.Node{n}}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	return topo.New(s).Nodes[0].Shape
}

const (
	// dgx1 is a hybrid cube mesh: one island, links of different width.
	dgx1 = `
		X   NV1 NV1 NV2 NV2 SYS SYS SYS
		NV1 X   NV2 NV1 SYS NV2 SYS SYS
		NV1 NV2 X   NV2 SYS SYS NV1 SYS
		NV2 NV1 NV2 X   SYS SYS SYS NV1
		NV2 SYS SYS SYS X   NV1 NV1 NV2
		SYS NV2 SYS SYS NV1 X   NV2 NV1
		SYS SYS NV1 SYS NV1 NV2 X   NV2
		SYS SYS SYS NV1 NV2 NV1 NV2 X`
	// pairs are four NVLink bridges over two sockets.
	pairs = `
		X    NV12 NODE NODE SYS  SYS  SYS  SYS
		NV12 X    NODE NODE SYS  SYS  SYS  SYS
		NODE NODE X    NV12 SYS  SYS  SYS  SYS
		NODE NODE NV12 X    SYS  SYS  SYS  SYS
		SYS  SYS  SYS  SYS  X    NV12 NODE NODE
		SYS  SYS  SYS  SYS  NV12 X    NODE NODE
		SYS  SYS  SYS  SYS  NODE NODE X    NV12
		SYS  SYS  SYS  SYS  NODE NODE NV12 X`
	// switched has PCIe switches with two GPUs each, and no NVLink.
	switched = `
		X   PIX PHB PHB SYS SYS
		PIX X   PHB PHB SYS SYS
		PHB PHB X   PIX SYS SYS
		PHB PHB PIX X   SYS SYS
		SYS SYS SYS SYS X   PIX
		SYS SYS SYS SYS PIX X`
)

func TestChoose(t *testing.T) {
	tests := map[string]struct {
		matrix string
		free   []int
		count  int
		want   []int8
	}{
		"double links first":                     {dgx1, []int{0, 1, 2, 3, 4, 5, 6, 7}, 2, []int8{0, 3}},
		"four all joined to each other":          {dgx1, []int{0, 1, 2, 3, 4, 5, 6, 7}, 4, []int8{0, 1, 2, 3}},
		"the ring of four where no quad is free": {dgx1, []int{0, 2, 3, 4, 5, 7}, 4, []int8{0, 3, 7, 4}},
		"all eight in a ring":                    {dgx1, []int{0, 1, 2, 3, 4, 5, 6, 7}, 8, []int8{0, 3, 2, 1, 5, 6, 7, 4}},
		"an intact pair for two":                 {pairs, []int{0, 2, 3, 4, 5, 6, 7}, 2, []int8{2, 3}},
		"a broken pair for one":                  {pairs, []int{0, 1, 2, 3, 4, 6, 7}, 1, []int8{4}},
		"two pairs on one socket":                {pairs, []int{0, 1, 2, 3, 4, 5, 6, 7}, 4, []int8{0, 1, 2, 3}},
		"two pairs, sockets apart when it must":  {pairs, []int{0, 1, 2, 4, 5, 7}, 4, []int8{0, 1, 4, 5}},
		"three: a pair and a broken one":         {pairs, []int{0, 2, 3, 4, 5, 6, 7}, 3, []int8{0, 2, 3}},
		"one beside a broken switch":             {switched, []int{0, 1, 2, 4, 5}, 1, []int8{2}},
		"two below one switch":                   {switched, []int{0, 2, 3, 4}, 2, []int8{2, 3}},
		"none too many":                          {switched, []int{0, 2}, 2, []int8{0, 2}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var mask uint64
			for _, i := range tt.free {
				mask |= 1 << i
			}
			var c chooser
			for range 2 { // the second answer is a kept one
				if diff := cmp.Diff(tt.want, c.choose(shapeOf(t, tt.matrix), mask, tt.count)); diff != "" {
					t.Errorf("chosen (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// crossed has a ring of four wide links with narrow ones across, and four GPUs
// that are all joined by links of middle width.
const crossed = `
	X   NV4 NV1 NV4 NV1 NV1 NV1 NV1
	NV4 X   NV4 NV1 NV1 NV1 NV1 NV1
	NV1 NV4 X   NV4 NV1 NV1 NV1 NV1
	NV4 NV1 NV4 X   NV1 NV1 NV1 NV1
	NV1 NV1 NV1 NV1 X   NV2 NV2 NV2
	NV1 NV1 NV1 NV1 NV2 X   NV2 NV2
	NV1 NV1 NV1 NV1 NV2 NV2 X   NV2
	NV1 NV1 NV1 NV1 NV2 NV2 NV2 X`

// A ring is as fast as its weakest link, an exchange between all as the weakest
// link between any two.
func TestChooseForTheCollective(t *testing.T) {
	for _, tt := range []struct {
		allToAll bool
		want     []int8
	}{{false, []int8{0, 1, 2, 3}}, {true, []int8{4, 5, 6, 7}}} {
		c := chooser{allToAll: tt.allToAll}
		if diff := cmp.Diff(tt.want, c.choose(shapeOf(t, crossed), 0xff, 4)); diff != "" {
			t.Errorf("all to all %v (-want +got):\n%s", tt.allToAll, diff)
		}
	}
}

// Of all sets inside one island none has a wider weakest link.
func TestAllToAllIsWidest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := model.Node{ID: "n"}
		size := rapid.IntRange(2, 8).Draw(t, "gpus")
		for i := range size {
			n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprint(i)})
			row := make([]model.Link, size)
			for k := range row {
				row[k].Kind = rapid.SampledFrom([]string{"NV1", "NV2", "NV4"}).Draw(t, "kind")
			}
			n.Links = append(n.Links, row)
		}
		shape := topo.New(&model.Snapshot{Nodes: []model.Node{n}}).Nodes[0].Shape
		count := rapid.IntRange(2, size).Draw(t, "count")
		c := chooser{allToAll: true}
		got := weakest(shape, maskOf(c.choose(shape, 1<<size-1, count)))
		for set := uint64(0); set < 1<<size; set++ {
			if bits.OnesCount64(set) == count && weakest(shape, set) > got {
				t.Fatalf("chose a set of %g GB/s, %b has %g", got, set, weakest(shape, set))
			}
		}
	})
}

// Any machine, any free GPUs: the choice has the right size, lies in what is
// free, and is inside one island whenever one has room.
func TestChooseAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := model.Node{ID: "n"}
		size := rapid.IntRange(1, 24).Draw(t, "gpus")
		for i := range size {
			n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprint(i), Island: rapid.IntRange(0, 3).Draw(t, "island")})
		}
		if rapid.Bool().Draw(t, "links") {
			for range size {
				row := make([]model.Link, size)
				for k := range row {
					row[k].Kind = rapid.SampledFrom([]string{"NV1", "NV12", "PIX", "SYS", "??", "NV", "NV999999"}).Draw(t, "kind")
				}
				n.Links = append(n.Links, row)
			}
		}
		shape := topo.New(&model.Snapshot{Nodes: []model.Node{n}}).Nodes[0].Shape
		mask := rapid.Uint64Range(1, 1<<size-1).Draw(t, "free")
		count := rapid.IntRange(1, bits.OnesCount64(mask)).Draw(t, "count")
		var c chooser
		got := c.choose(shape, mask, count)
		set := maskOf(got)
		if len(got) != count || bits.OnesCount64(set) != count || set&^mask != 0 {
			t.Fatalf("chose %v of %b for %d", got, mask, count)
		}
		fits := func(island uint64) bool { return bits.OnesCount64(island&mask) >= count }
		inside := func(island uint64) bool { return set&^island == 0 }
		if slices.ContainsFunc(shape.Islands, fits) && !slices.ContainsFunc(shape.Islands, inside) {
			t.Fatalf("chose %v across islands %b", got, shape.Islands)
		}
	})
}
