package study

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// buyers are the rows that buy, and what spot costs there by on demand; 0: there is none.
var buyers = []struct {
	row  string
	spot float64
}{{rowDemand, 0}, {rowSpot, spotPart}, {rowWait, 0}}

// otherSizes are what fleets that buy have by the fixed one, beside smaller.
var otherSizes = []float64{0.5, 0.75, 1}

// sizes plays fleets that buy and own more, or less, than the one of the other rows.
func (f *fleets) sizes(ctx context.Context, but int) (out []Cost, err error) {
	for _, part := range otherSizes {
		nodes := max(1, int(part*float64(f.cell.GPUs/perNode)))
		if nodes == but {
			continue
		}
		for _, row := range []string{rowDemand, rowWait} {
			c, err := f.play(ctx, row, nodes, 0)
			if err != nil {
				return nil, err
			}
			c.Size = true
			out = append(out, c)
		}
	}
	return out, nil
}

// bySize says what it costs to own more, or less.
func (p *page) bySize(c *Played) {
	if !slices.ContainsFunc(c.Costs, func(x Cost) bool { return x.Size }) {
		return
	}
	head := []string{"fleet", "owned GPUs", "deadlines met", "wait P95", "bought GPU-h"}
	for _, r := range priceRatios {
		head = append(head, fmt.Sprintf("all hours, × %g", r))
	}
	rows := [][]string{head}
	for _, row := range []string{rowDemand, rowWait} {
		bySize := map[int][]Cost{}
		for _, x := range c.Costs {
			if x.Row == row {
				bySize[x.GPUs] = append(bySize[x.GPUs], x)
			}
		}
		var gpus []int
		for n := range bySize {
			gpus = append(gpus, n)
		}
		slices.SortFunc(gpus, cmp.Compare[int])
		for _, n := range gpus {
			mean := func(of func(*Cost) float64) (sum float64) {
				for i := range bySize[n] {
					sum += of(&bySize[n][i]) / float64(len(bySize[n]))
				}
				return sum
			}
			line := []string{row, whole(float64(n)), percent(mean(func(x *Cost) float64 { return x.Met })), span(mean(func(x *Cost) float64 { return x.QueueP95 })), whole(mean(bought))}
			for _, r := range priceRatios {
				line = append(line, ratio(mean(perRun(r, false))))
			}
			rows = append(rows, line)
		}
	}
	p.say("Cost per run by how many GPUs are owned, for the same jobs:\n")
	p.table(rows)
}
