package trace

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// header is that of the project's own form.
var header = []string{"job", "submit_s", "duration_s", "gpus", "min_gpus", "max_gpus", "model", "queue", "deadline_s", "class", "gpu_share", "mig_profile", "gpu_models"}

// Writer writes jobs in the project's own form.
type Writer struct{ csv *csv.Writer }

// NewWriter writes the header.
func NewWriter(w io.Writer) (*Writer, error) {
	out := &Writer{csv.NewWriter(w)}
	if err := out.csv.Write(header); err != nil {
		return nil, fmt.Errorf("write trace: %w", err)
	}
	return out, nil
}

// Write writes a job.
func (w *Writer) Write(j Job) error {
	bound := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	deadline := ""
	if j.Deadline != 0 {
		deadline = seconds(j.Deadline)
	}
	share := ""
	if j.Share != 0 && j.Profile == "" {
		share = strconv.FormatFloat(j.Share, 'g', -1, 64)
	}
	err := w.csv.Write([]string{j.ID, seconds(j.Submit), seconds(j.Duration), strconv.Itoa(j.GPUs), bound(j.Min), bound(j.Max), j.Model, j.Queue, deadline, j.Class, share, j.Profile, j.GPUModels})
	if err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

// Flush writes what is left.
func (w *Writer) Flush() error {
	w.csv.Flush()
	if err := w.csv.Error(); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

// seconds writes a time to the millisecond.
func seconds(s float64) string {
	text := strconv.FormatFloat(s, 'f', 3, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// Throughputs reads Gavel's file of throughputs, plain or gzipped: the steps per
// second of each type and number of GPUs, alone on a GPU of that model.
func Throughputs(r io.Reader, gpu string) (map[string]float64, error) {
	plain, err := unzip(r)
	if err != nil {
		return nil, err
	}
	var all map[string]map[string]map[string]json.RawMessage
	if err := json.NewDecoder(plain).Decode(&all); err != nil {
		return nil, fmt.Errorf("%w: decode throughputs: %w", ErrTrace, err)
	}
	table, known := all[gpu]
	if !known {
		return nil, fmt.Errorf("%w: throughputs of %q: want one of %s", ErrTrace, gpu, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	out := make(map[string]float64, len(table))
	for key, beside := range table {
		var alone float64
		if err := json.Unmarshal(beside["null"], &alone); err != nil {
			return nil, fmt.Errorf("%w: throughput of %s alone: %w", ErrTrace, key, err)
		}
		out[key] = alone
	}
	return out, nil
}
