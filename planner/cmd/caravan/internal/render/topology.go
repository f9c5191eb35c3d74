package render

import (
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// Topology writes the tree with its free and used GPUs.
func Topology(w io.Writer, s Style, t httpapi.Topology) error {
	if t.Root.Nodes == 0 {
		_, err := fmt.Fprintln(w, "No node has GPUs. On a GPU node, `nomad-device-caravan check` says why not.")
		return err
	}
	g := newGrid("DOMAIN", "NODES", "GPUS", "FREE", "USE", "NOTE")
	branch(g, s, t.Root, "", "")
	return g.write(w, "")
}

// branch adds a domain and everything below it. own is what stands before its
// name, below what stands before its children's.
func branch(g *grid, s Style, d httpapi.Domain, own, below string) {
	title := strings.TrimSpace(d.Level + " " + d.Name)
	nodes := strconv.Itoa(d.Nodes)
	use := ""
	if d.Level == d.Name {
		title = d.Name // the root
	}
	if d.Level == model.LevelNode {
		title, nodes = d.Name, ""
		use = bar(s, d)
	}
	g.add(own+title, nodes, strconv.Itoa(d.GPUs), strconv.Itoa(d.FreeGPUs), use, note(s, d))
	for i, child := range d.Children {
		if i == len(d.Children)-1 {
			branch(g, s, child, below+"└─ ", below+"   ")
		} else {
			branch(g, s, child, below+"├─ ", below+"│  ")
		}
	}
}

// bar draws a node's GPUs: used, on a node that takes nothing, unhealthy, free.
func bar(s Style, d httpapi.Domain) string {
	const most = 16
	if d.GPUs > most {
		return ""
	}
	rest := max(0, d.GPUs-d.FreeGPUs-d.UnhealthyGPUs)
	used := min(d.UsedGPUs, rest)
	return strings.Repeat("■", used) + strings.Repeat("·", rest-used) + s.paint(red, strings.Repeat("✗", d.UnhealthyGPUs)) + s.paint(green, strings.Repeat("□", d.FreeGPUs))
}

func note(s Style, d httpapi.Domain) string {
	var parts []string
	if d.Model != "" {
		parts = append(parts, d.Model)
	}
	if d.Slices > 0 {
		parts = append(parts, fmt.Sprintf("%s in %d slices, %d free", count(d.SharedGPUs, "shared GPU"), d.Slices, d.FreeSlices))
	}
	if d.UnhealthyGPUs > 0 {
		parts = append(parts, s.paint(red, fmt.Sprintf("%d unhealthy", d.UnhealthyGPUs)))
	}
	if d.Unschedulable != "" {
		parts = append(parts, s.paint(yellow, d.Unschedulable))
	}
	return strings.Join(parts, ", ")
}

// Node writes the inside of a node: its GPUs, who holds them, and the links
// between them, island by island.
func Node(w io.Writer, s Style, n httpapi.NodeTopology) error {
	g := newGrid()
	g.add("Node", s.paint(bold, n.Name)+parens(n.ID))
	if place := levels(n.Levels); place != "" {
		g.add("Place", place)
	}
	if n.Datacenter != "" || n.Pool != "" {
		g.add("Datacenter", strings.TrimSpace(n.Datacenter+", pool "+n.Pool))
	}
	if n.Unschedulable != "" {
		g.add("Unschedulable", s.paint(yellow, n.Unschedulable))
	}
	for _, warning := range n.Warnings {
		g.add(s.paint(yellow, "Warning"), warning.Text)
	}
	if err := g.write(w, ""); err != nil {
		return err
	}
	if len(n.GPUs) == 0 {
		_, err := fmt.Fprintln(w, "\nThis node has no GPUs. `nomad-device-caravan check` on the node says why not.")
		return err
	}
	if err := gpus(w, s, n); err != nil {
		return err
	}
	return matrix(w, s, n)
}

func gpus(w io.Writer, s Style, n httpapi.NodeTopology) error {
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	g := newGrid("GPU", "UUID", "MODEL", "ISLAND", "NUMA", "HELD BY")
	for i, gpu := range n.GPUs {
		numa := strconv.Itoa(gpu.NUMA)
		if gpu.NUMA < 0 {
			numa = "-"
		}
		g.add(strconv.Itoa(i), s.gpu(gpu.UUID), gpu.Model, strconv.Itoa(gpu.Island), numa, holder(s, gpu))
	}
	return g.write(w, "")
}

func holder(s Style, gpu httpapi.GPUUse) string {
	text := s.paint(green, "free")
	switch {
	case gpu.Job != "":
		text = Name(gpu.Namespace, gpu.Job)
	case gpu.Alloc != "":
		text = "allocation " + gpu.Alloc
	}
	if gpu.Stopping {
		text += s.paint(yellow, " (stopping)")
	}
	if gpu.Lost {
		text += s.paint(red, " (node lost)")
	}
	if gpu.Unhealthy != "" {
		if gpu.Job == "" && gpu.Alloc == "" {
			text = ""
		}
		text = strings.TrimSpace(text + " " + s.paint(red, "unhealthy: "+gpu.Unhealthy))
	}
	return text
}

// matrix draws the links, the GPUs of an island side by side.
func matrix(w io.Writer, s Style, n httpapi.NodeTopology) error {
	order, first := byIsland(n)
	if len(n.Links) != len(n.GPUs) {
		_, err := fmt.Fprintf(w, "\nThe links between the GPUs are not known; there are %s.\n", count(len(n.Islands), "island"))
		return err
	}
	if _, err := fmt.Fprintln(w, "\n"+s.paint(bold, "Links")+", one island after the other"); err != nil {
		return err
	}
	header := []string{""}
	for _, i := range order {
		header = append(header, divide(first[i], "GPU"+strconv.Itoa(i)))
	}
	g := newGrid(header...)
	for k, i := range order {
		if first[i] && k > 0 {
			g.add("")
		}
		cells := []string{"GPU" + strconv.Itoa(i)}
		for _, j := range order {
			kind := ""
			if j < len(n.Links[i]) {
				kind = n.Links[i][j].Kind
			}
			if i != j && n.GPUs[i].Island == n.GPUs[j].Island {
				kind = s.paint(green, kind)
			}
			cells = append(cells, divide(first[j], kind))
		}
		g.add(cells...)
	}
	return g.write(w, "")
}

// divide sets an island's first column apart from the one before.
func divide(first bool, text string) string {
	if first {
		return "  " + text
	}
	return text
}

// byIsland orders GPU indexes by island, and tells which are an island's
// first. A GPU that no island names comes at the end.
func byIsland(n httpapi.NodeTopology) (order []int, first map[int]bool) {
	first = map[int]bool{}
	seen := map[int]bool{}
	for i := range n.GPUs {
		seen[i] = n.GPUs[i].Slices > 0 // a slice has no links of its own
	}
	for _, island := range n.Islands {
		for _, i := range island {
			if i < 0 || i >= len(n.GPUs) || seen[i] {
				continue
			}
			first[i] = len(order) > 0 && i == island[0]
			seen[i] = true
			order = append(order, i)
		}
	}
	for i := range n.GPUs {
		if !seen[i] {
			order = append(order, i)
		}
	}
	return order, first
}

// levels are a node's domains, the standard ones outermost first.
func levels(of map[string]string) string {
	rank := map[string]int{}
	for i, level := range model.DefaultLevels {
		rank[level] = i + 1
	}
	names := make([]string, 0, len(of))
	for level := range of {
		names = append(names, level)
	}
	sort.Slice(names, func(i, j int) bool {
		a, b := rank[names[i]], rank[names[j]]
		if a != b && a > 0 && b > 0 {
			return a < b
		}
		if (a > 0) != (b > 0) {
			return a > 0
		}
		return names[i] < names[j]
	})
	parts := make([]string, len(names))
	for i, level := range names {
		parts[i] = level + " " + of[level]
	}
	return strings.Join(parts, ", ")
}
