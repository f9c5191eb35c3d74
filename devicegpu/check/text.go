package check

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// WriteText prints the report for people.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", r.Source, count(r.GPUCount, "GPU"))
	if r.GPUCount > 0 {
		fmt.Fprintf(&b, " in %s", count(len(r.Islands), "island"))
	}
	if r.DriverVersion != "" {
		fmt.Fprintf(&b, ", driver %s", r.DriverVersion)
	}
	if r.CUDAVersion != "" {
		fmt.Fprintf(&b, ", CUDA %s", r.CUDAVersion)
	}
	if r.Simulated {
		b.WriteString(" (simulated)")
	}
	b.WriteString("\n")
	if r.GPUCount > 0 {
		b.WriteString("\n" + r.gpuTable() + "\n\n" + r.linkTable() + "\n")
	}
	for _, g := range r.Groups {
		b.WriteString("\nNomad would be shown " + g.Name + ":\n" + attributeTable(g.Attributes) + "\n")
	}
	if len(r.Problems) > 0 {
		b.WriteString("\nProblems:\n")
		for _, p := range r.Problems {
			b.WriteString("  - " + p + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// plain is a table without frame, as nvidia-smi's own matrix is.
func plain() table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.Style{
		Box:     table.BoxStyle{PaddingRight: "  "},
		Format:  table.FormatOptions{Header: text.FormatDefault},
		Options: table.OptionsNoBordersAndSeparators,
	})
	t.SuppressTrailingSpaces()
	return t
}

func (r Report) gpuTable() string {
	t := plain()
	t.AppendHeader(table.Row{"GPU", "UUID", "Bus ID", "Model", "Memory", "NUMA", "Switch", "Island", "NICs", "Health"})
	for _, g := range r.GPUs {
		health := "healthy"
		if !g.Healthy {
			health = g.Unhealthy
		}
		memory, sw := "-", "-"
		if g.MemoryMiB > 0 {
			memory = fmt.Sprintf("%d MiB", g.MemoryMiB)
		}
		if g.Switch != nil {
			sw = strconv.Itoa(*g.Switch)
		}
		t.AppendRow(table.Row{
			g.Index, g.UUID, orDash(g.BusID), orDash(g.Model), memory, orDash(topology.FormatList(g.NUMA)), sw, g.Island, orDash(strings.Join(g.NICs, " ")), health,
		})
	}
	return t.Render()
}

// linkTable is the island matrix: the GPUs sorted by island, a line between
// islands.
func (r Report) linkTable() string {
	t := plain()
	header := table.Row{"Island", ""}
	order := slices.Concat(r.Islands...)
	for _, i := range order {
		header = append(header, fmt.Sprintf("GPU%d", i))
	}
	t.AppendHeader(header)
	for n, island := range r.Islands {
		for k, i := range island {
			name := ""
			if k == 0 {
				name = strconv.Itoa(n)
			}
			row := table.Row{name, fmt.Sprintf("GPU%d", i)}
			for _, j := range order {
				row = append(row, r.Links[i][j].String())
			}
			t.AppendRow(row)
		}
	}
	return t.Render()
}

func attributeTable(attributes map[string]string) string {
	t := plain()
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		value := attributes[key]
		if key == topology.AttrTopology {
			value = fmt.Sprintf("(%d characters)", len(value))
		}
		t.AppendRow(table.Row{"  " + key, value})
	}
	return t.Render()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
