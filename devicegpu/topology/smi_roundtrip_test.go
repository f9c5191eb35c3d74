package topology

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// smiText prints a matrix as nvidia-smi does, in one of its forms.
type smiText struct {
	underline, numaID, nicRows, legend, list bool
	tabs                                     bool // else padded with spaces
}

func (s smiText) print(m Matrix) string {
	var b strings.Builder
	if s.list {
		for i, g := range m.GPUs {
			fmt.Fprintf(&b, "GPU %d: %s (UUID: GPU-%d)\n", i, g.Model, i)
		}
	}
	write := func(first string, cells []string) {
		if !s.tabs {
			for i, c := range cells {
				cells[i] = fmt.Sprintf("%-8s", c)
			}
			b.WriteString(strings.TrimRight(fmt.Sprintf("%-8s", first)+strings.Join(cells, " "), " ") + "\n")
			return
		}
		b.WriteString(first + "\t" + strings.Join(cells, "\t") + "\n")
	}
	var header []string
	for i := range m.GPUs {
		header = append(header, fmt.Sprintf("GPU%d", i))
	}
	for i, n := range m.NICs {
		if s.legend {
			header = append(header, fmt.Sprintf("NIC%d", i))
			continue
		}
		header = append(header, n.Name)
	}
	devices := header
	header = append(header[:len(header):len(header)], "CPU Affinity", "NUMA Affinity")
	if s.numaID {
		header = append(header, "GPU NUMA ID")
	}
	if s.underline {
		header[0] = "\x1b[4m" + header[0]
		header[len(header)-1] += "\x1b[0m"
	}
	write("", header)
	for i, g := range m.GPUs {
		var cells []string
		for _, l := range m.Links[i] {
			cells = append(cells, " "+l.String()+" ")
		}
		for n := range m.NICs {
			cells = append(cells, string(m.NICPaths[i][n]))
		}
		numa := FormatList(g.NUMA)
		if numa == "" {
			numa = "N/A"
		}
		cells = append(cells, g.CPUs, numa)
		if s.numaID {
			cells = append(cells, "", "N/A")
		}
		write(devices[i], cells)
	}
	for n := range m.NICs {
		if !s.nicRows {
			break
		}
		var cells []string
		for i := range m.GPUs {
			cells = append(cells, string(m.NICPaths[i][n]))
		}
		for k := range m.NICs {
			if k == n {
				cells = append(cells, " X ")
				continue
			}
			cells = append(cells, "SYS")
		}
		write(devices[len(m.GPUs)+n], cells)
	}
	if s.legend {
		b.WriteString("\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n\nNIC Legend:\n\n")
		for i, n := range m.NICs {
			fmt.Fprintf(&b, "  NIC%d: %s\n", i, n.Name)
		}
	}
	return b.String()
}

// TestSMIRoundTrip prints any machine in any form and reads it back.
func TestSMIRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, nics := rapid.IntRange(1, 9).Draw(t, "gpus"), rapid.IntRange(0, 4).Draw(t, "nics")
		paths := []Kind{KindPIX, KindPXB, KindPHB, KindNode, KindSys}
		want := Empty(n, nics)
		for i := range n {
			cpu := rapid.IntRange(0, 200).Draw(t, "cpu")
			want.GPUs[i].CPUs = fmt.Sprintf("%d-%d,%d", cpu, cpu+3, cpu+10)
			want.GPUs[i].NUMA = rapid.SampledFrom([][]int{nil, {0}, {1}, {0, 3, 4, 5}}).Draw(t, "numa")
			want.GPUs[i].Model = rapid.SampledFrom([]string{"NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-16GB", "NVIDIA (odd)"}).Draw(t, "model")
			for j := range i {
				l := Link{Kind: rapid.SampledFrom(append(paths, KindNVLink)).Draw(t, "link")}
				if l.Kind == KindNVLink {
					l.Count = rapid.IntRange(1, 18).Draw(t, "count")
				}
				want.SetLink(i, j, l)
			}
			for k := range nics {
				want.NICPaths[i][k] = rapid.SampledFrom(paths).Draw(t, "path")
			}
		}
		for k := range nics {
			want.NICs[k] = NIC{Name: fmt.Sprintf("mlx5_%d", k), RDMA: true}
		}
		var form smiText
		for _, flag := range []*bool{&form.underline, &form.numaID, &form.nicRows, &form.legend, &form.list, &form.tabs} {
			*flag = rapid.Bool().Draw(t, "flag")
		}
		text := form.print(want)
		f, err := Parse([]byte(text))
		if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		if !form.list {
			for i := range want.GPUs {
				want.GPUs[i].Model = ""
			}
		}
		// What is derived is checked elsewhere.
		ignore := cmp.Options{
			cmpopts.IgnoreFields(Link{}, "GBs"), cmpopts.IgnoreFields(GPU{}, "Switch", "NVLinkGeneration"),
			cmpopts.IgnoreFields(NIC{}, "Switch"), cmpopts.IgnoreFields(Matrix{}, "NVSwitch"),
		}
		if d := cmp.Diff(want, f.Matrix, ignore); d != "" || len(f.Problems) > 0 {
			t.Fatalf("problems %q; matrix (-want +got):\n%s\nof:\n%s", f.Problems, d, text)
		}
	})
}
