package topology

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	ansiCode = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)
	gpuName  = regexp.MustCompile(`^GPU\d+$`)
	nicName  = regexp.MustCompile(`^(?:NIC\d+|[a-z][a-z0-9]*_[a-z0-9_.-]+)$`)
	listLine = regexp.MustCompile(`^GPU (\d+): (.+?) \(UUID: [^)]*\)\s*$`)
	// gluedCells are cells that lost the space between them on their way.
	gluedCells = regexp.MustCompile(`^(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC){2,}$`)
	oneCell    = regexp.MustCompile(`X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC`)
	migLine    = regexp.MustCompile(`^\s+MIG \S+\s+Device\s+\d+:`)
	legendLine = regexp.MustCompile(`^\s*(NIC\d+):\s*(\S+)\s*$`)
)

// smiTable is the matrix of `nvidia-smi topo -m` while it is read.
type smiTable struct {
	columns  []string // devices
	titles   []string // of the columns behind the devices, in order
	links    map[string][]Link
	tails    map[string][]string // what stands behind a row's links
	problems []string
}

// parseSMI reads the output of `nvidia-smi topo -m` (or -mp): a header that
// names devices, then one row per device. Underline codes, tabs or spaces,
// text before and after, missing rows of NICs and missing affinities are all
// seen in the wild; a missing row of a GPU or a short row is an error, since
// it means that the text was cut.
func parseSMI(text string) (File, error) {
	text = strings.ReplaceAll(ansiCode.ReplaceAllString(text, ""), "\r", "")
	lines := strings.Split(text, "\n")
	t := &smiTable{links: map[string][]Link{}, tails: map[string][]string{}}
	models, aliases := map[string]string{}, map[string]string{}
	listed, divided := "", map[string]bool{}
	for _, line := range lines {
		fields := strings.Fields(line)
		if f := listLine.FindStringSubmatch(strings.TrimSpace(line)); f != nil {
			listed = "GPU" + f[1]
			models[listed] = f[2]
			continue
		}
		if migLine.MatchString(line) && !divided[listed] {
			divided[listed] = true
			t.problems = append(t.problems, listed+" is divided into MIG instances, which the matrix does not show: it is taken for a whole GPU")
			continue
		}
		if f := legendLine.FindStringSubmatch(line); f != nil {
			aliases[f[1]] = f[2]
			continue
		}
		if t.wantsHeader(fields) {
			t.readHeader(fields)
			continue
		}
		if len(fields) < 2 || !slices.Contains(t.columns, fields[0]) {
			continue
		}
		if err := t.readRow(line, fields); err != nil {
			return File{}, err
		}
	}
	if len(t.columns) == 0 {
		return File{}, errors.New("it is neither XML nor a matrix of `nvidia-smi topo -m`: no line names GPU0, GPU1, …")
	}
	return t.file(models, aliases)
}

// readHeader takes a line of device names, the first one a GPU's, which is
// followed by titles. Without titles only names of a usual form are taken, so
// that a sentence is not.
func (t *smiTable) readHeader(fields []string) {
	n := 0
	for n < len(fields) && !startsTitle(fields[n:]) {
		if _, err := ParseLink(fields[n]); err == nil {
			return // a row
		}
		n++
	}
	if n == 0 || !gpuName.MatchString(fields[0]) {
		return
	}
	unusual := func(name string) bool { return !gpuName.MatchString(name) && !nicName.MatchString(name) }
	if n == len(fields) && (loneName(fields) && fields[0] != "GPU0" || slices.ContainsFunc(fields, unusual)) {
		return
	}
	t.columns = fields[:n]
	rest := strings.Join(fields[n:], " ")
	for _, title := range []string{"CPU Affinity", "GPU NUMA ID", "NUMA Affinity"} {
		if strings.Contains(rest, title) {
			t.titles = append(t.titles, title)
		}
	}
	slices.SortFunc(t.titles, func(a, b string) int { return strings.Index(rest, a) - strings.Index(rest, b) })
}

// wantsHeader reports whether a line may be the header: there is none yet, or
// what was taken for one was a lone word, and this is not its row.
func (t *smiTable) wantsHeader(fields []string) bool {
	if !loneName(t.columns) || len(t.links) > 0 {
		return len(t.columns) == 0
	}
	return len(fields) > 1 && fields[1] != string(KindSelf)
}

// loneName reports whether a line is one word, which may be the header of a
// machine with one GPU or a word of some text before the matrix.
func loneName(fields []string) bool { return len(fields) == 1 }

// startsTitle reports whether the words start the title of a column that is
// not a device's.
func startsTitle(words []string) bool {
	if len(words) < 2 {
		return false
	}
	return words[1] == "Affinity" || words[0] == "GPU" && words[1] == "NUMA"
}

func (t *smiTable) readRow(line string, fields []string) error {
	name := fields[0]
	var cells []string
	for _, cell := range fields[1:] {
		if gluedCells.MatchString(cell) {
			cells = append(cells, oneCell.FindAllString(cell, -1)...)
			continue
		}
		cells = append(cells, cell)
	}
	if _, again := t.links[name]; again {
		return nil // a second matrix, such as one of another host
	}
	if len(cells) < len(t.columns) {
		return fmt.Errorf("row %s has %d links for %d devices: is the text cut off?", name, len(cells), len(t.columns))
	}
	row := make([]Link, len(t.columns))
	for i, cell := range cells[:len(t.columns)] {
		l, err := ParseLink(cell)
		if err != nil {
			return fmt.Errorf("row %s, column %s: %w", name, t.columns[i], err)
		}
		if (l.Kind == KindSelf) != (t.columns[i] == name) {
			return fmt.Errorf("row %s, column %s: %q: a device is X to itself and to no other", name, t.columns[i], cell)
		}
		row[i] = l
	}
	t.links[name] = row
	t.tails[name] = cells[len(t.columns):]
	if parts := strings.Split(line, "\t"); len(parts) > len(row)+1 && strings.TrimSpace(parts[len(row)+1]) == "" && t.tails[name] != nil {
		// The CPU affinity is empty: on a NUMA node without allowed CPUs.
		t.tails[name] = slices.Insert(t.tails[name], 0, "")
	}
	return nil
}

// split returns the columns of GPUs and of NICs.
func (t *smiTable) split() (gpus, nics []int, err error) {
	for i, name := range t.columns {
		if slices.Contains(t.columns[:i], name) {
			return nil, nil, fmt.Errorf("the header names %s twice", name)
		}
		if !gpuName.MatchString(name) {
			nics = append(nics, i)
			continue
		}
		if t.links[name] == nil {
			return nil, nil, fmt.Errorf("the row of %s is missing: is the text cut off?", name)
		}
		gpus = append(gpus, i)
	}
	if len(gpus) > MaxGPUs || len(nics) > MaxNICs {
		return nil, nil, fmt.Errorf("%d GPUs and %d NICs: at most %d and %d are allowed", len(gpus), len(nics), MaxGPUs, MaxNICs)
	}
	return gpus, nics, nil
}

func (t *smiTable) file(models, aliases map[string]string) (File, error) {
	gpus, nics, err := t.split()
	if err != nil {
		return File{}, err
	}
	m := Empty(len(gpus), len(nics))
	f := File{Format: "nvidia-smi topo", Details: make([]Detail, len(gpus))}
	for i, col := range gpus {
		f.Details[i].Vendor = "nvidia"
		m.GPUs[i].Model = models[t.columns[col]]
		f.Details[i].ComputeCapability = modelCapability(m.GPUs[i].Model)
		row := t.links[t.columns[col]]
		for j := range i {
			m.SetLink(i, j, t.pair(col, gpus[j]))
		}
		for j, nic := range nics {
			if row[nic].Kind.Fast() {
				return File{}, fmt.Errorf("row %s, column %s: a NIC is not joined by %s", t.columns[col], t.columns[nic], row[nic])
			}
			m.NICPaths[i][j] = row[nic].Kind
		}
		if err := t.readTail(t.columns[col], &m.GPUs[i]); err != nil {
			return File{}, err
		}
	}
	between := make([][]Kind, len(nics))
	for i, col := range nics {
		name := t.columns[col]
		m.NICs[i].Name, m.NICs[i].RDMA = name, true
		if alias := aliases[name]; alias != "" {
			m.NICs[i].Name = alias
		}
		for _, other := range nics[:i] {
			kind := KindUnknown
			if row := t.links[name]; row != nil {
				kind = row[other].Kind
			}
			between[i] = append(between[i], kind)
		}
	}
	m.groupSwitches(between)
	m.NVSwitch = m.mustBeSwitched()
	m.setNVLinkBandwidth(f.Details)
	m.SetPCIeBandwidth(make([]float64, len(gpus)))
	f.Matrix, f.Problems = m, t.problems
	return f, nil
}

// pair takes a link from both rows, and the lesser where they differ.
func (t *smiTable) pair(a, b int) Link {
	x, y := t.links[t.columns[a]][b], t.links[t.columns[b]][a]
	if x == y {
		return x
	}
	if x.Kind.Distance() < y.Kind.Distance() || x.Kind == y.Kind && x.Count > y.Count {
		x, y = y, x
	}
	t.problems = append(t.problems, fmt.Sprintf("%s and %s are joined by %s one way and %s the other; taken as %s",
		t.columns[b], t.columns[a], t.links[t.columns[b]][a], t.links[t.columns[a]][b], x))
	return x
}

// readTail reads what stands behind the links: the values of the titles, from
// the left. There may be more tabs between them than titles.
func (t *smiTable) readTail(name string, g *GPU) error {
	for i, value := range t.tails[name] {
		if i >= len(t.titles) || t.titles[i] == "GPU NUMA ID" {
			break
		}
		list, err := ParseList(value)
		if err != nil {
			return fmt.Errorf("row %s, %s: %w", name, t.titles[i], err)
		}
		if t.titles[i] == "NUMA Affinity" {
			g.NUMA = list
		} else {
			g.CPUs = FormatList(list)
		}
	}
	return nil
}

// mostNVLinks is the most that a GPU has (Rubin; until Blackwell it was 18).
const mostNVLinks = 36

// mustBeSwitched reports whether the NVLinks can only be there with switches:
// a GPU's links to all the others together are more than any GPU has.
func (m Matrix) mustBeSwitched() bool {
	for _, row := range m.Links {
		sum := 0
		for _, l := range row {
			if l.Kind == KindNVLink {
				sum += l.Count
			}
		}
		if sum > mostNVLinks {
			return true
		}
	}
	return false
}
