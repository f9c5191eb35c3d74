package progress

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

// flat is what a line says, for comparing.
type flat struct {
	Step             *int64
	Loss, Throughput *float64
	Checkpoint       bool
	CheckpointStep   *int64
	Path             string
	// Others are batch, noise_scale, fetch_s, prepare_s and compute_s, -1 for what
	// is not told; nil if none is.
	Others []float64
}

func flatten(t told) flat {
	f := flat{Step: t.step, Loss: t.loss, Throughput: t.amounts[0]}
	for i, x := range t.amounts[1:] {
		if x != nil && f.Others == nil {
			f.Others = []float64{-1, -1, -1, -1, -1}
		}
		if x != nil {
			f.Others[i] = *x
		}
	}
	if c := t.checkpoint; c != nil {
		f.Checkpoint, f.CheckpointStep, f.Path = true, c.step, c.path
	}
	return f
}

func TestParseLine(t *testing.T) {
	tests := map[string]struct {
		line string
		want flat
		// err is a part of the error; "" for none.
		err string
	}{
		"nothing":                     {" \r", flat{}, ""},
		"step":                        {"step 12", flat{Step: ptr[int64](12)}, ""},
		"loss":                        {"loss 2.5e-1\r", flat{Loss: ptr(0.25)}, ""},
		"throughput":                  {"throughput 5300", flat{Throughput: ptr(5300.0)}, ""},
		"several":                     {"step=3 loss=0.5 throughput=2", flat{Step: ptr[int64](3), Loss: ptr(0.5), Throughput: ptr(2.0)}, ""},
		"several words":               {"step 3 loss 0.5", flat{Step: ptr[int64](3), Loss: ptr(0.5)}, ""},
		"checkpoint":                  {"checkpoint", flat{Checkpoint: true}, ""},
		"checkpoint with all":         {"checkpoint step=7 path=/a/b", flat{Checkpoint: true, CheckpointStep: ptr[int64](7), Path: "/a/b"}, ""},
		"checkpoint in short":         {"checkpoint=/a", flat{Checkpoint: true, Path: "/a"}, ""},
		"checkpoint of the line":      {"step=9 checkpoint path=/a", flat{Step: ptr[int64](9), Checkpoint: true, CheckpointStep: ptr[int64](9), Path: "/a"}, ""},
		"checkpoint of another":       {"step=9 checkpoint step=8", flat{Step: ptr[int64](9), Checkpoint: true, CheckpointStep: ptr[int64](8)}, ""},
		"infinite loss":               {"loss inf", flat{Loss: ptr(math.Inf(1))}, ""},
		"JSON":                        {`{"step":3,"loss":0.5,"throughput":2,"checkpoint":{"step":1,"path":"/a b"}}`, flat{ptr[int64](3), ptr(0.5), ptr(2.0), true, ptr[int64](1), "/a b", nil}, ""},
		"parts of a step":             {"batch 512 noise_scale=1e4 fetch_s 0.02 prepare_s=0 compute_s=0.3", flat{Others: []float64{512, 1e4, 0.02, 0, 0.3}}, ""},
		"JSON parts of a step":        {`{"batch":512,"fetch_s":"0.02"}`, flat{Others: []float64{512, -1, 0.02, -1, -1}}, ""},
		"a negative part":             {"fetch_s=-1", flat{}, "fetch_s"},
		"an endless batch":            {"batch=inf", flat{}, "batch"},
		"JSON checkpoint true":        {`{"step":3,"checkpoint":true}`, flat{Step: ptr[int64](3), Checkpoint: true, CheckpointStep: ptr[int64](3)}, ""},
		"JSON checkpoint path":        {`{"checkpoint":"/a"}`, flat{Checkpoint: true, Path: "/a"}, ""},
		"JSON nulls":                  {`{"step":null,"loss":null,"checkpoint":null}`, flat{}, ""},
		"JSON loss beyond numbers":    {`{"loss":"Infinity"}`, flat{Loss: ptr(math.Inf(1))}, ""},
		"unknown word":                {"accuracy 3", flat{}, "accuracy"},
		"no value":                    {"step", flat{}, `step = ""`},
		"fraction of a step":          {"step 1.5", flat{}, "whole number"},
		"negative step":               {"step -1", flat{}, "not negative"},
		"step beyond 64 bits":         {"step 9223372036854775808", flat{}, "whole number"},
		"loss is a word":              {"loss high", flat{}, `loss = "high"`},
		"negative throughput":         {"throughput -1", flat{}, "throughput"},
		"throughput is none":          {"throughput nan", flat{}, "throughput"},
		"path alone":                  {"path=/a", flat{}, "only after checkpoint"},
		"all faults":                  {"step=x loss=y", flat{}, `loss = "y"`},
		"binary":                      {"step \xff", flat{}, "UTF-8"},
		"control character":           {"checkpoint path=/a\x1b[2J", flat{}, "control"},
		"too long":                    {"checkpoint path=" + strings.Repeat("x", maxLine), flat{}, "longer than"},
		"JSON cut off":                {`{"step":`, flat{}, "read JSON"},
		"JSON twice":                  {`{"step":1}{"step":2}`, flat{}, "follows"},
		"JSON unknown key":            {`{"stepp":1}`, flat{}, "stepp"},
		"JSON unknown key inside":     {`{"checkpoint":{"file":"/a"}}`, flat{}, "file"},
		"JSON wrong type":             {`{"step":true}`, flat{}, "step"},
		"JSON wrong checkpoint":       {`{"checkpoint":7}`, flat{}, "checkpoint"},
		"JSON wrong checkpoint step":  {`{"checkpoint":{"step":-7}}`, flat{}, "step"},
		"JSON path with line":         {`{"checkpoint":"/a\nb"}`, flat{}, "control"},
		"JSON throughput not a count": {`{"throughput":"Infinity"}`, flat{}, "throughput"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseLine([]byte(test.line))
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if diff := cmp.Diff(test.want, flatten(got)); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

// Nothing that a line holds panics or lets through what cannot be reported.
func FuzzParseLine(f *testing.F) {
	for _, s := range []string{"step 1", "step=1 loss=nan throughput=3", "checkpoint step=1 path=/a", `{"step":1,"loss":"NaN","checkpoint":{"path":"/a"}}`,
		"{", "=", "checkpoint checkpoint=", "\xff", `{"checkpoint":[]}`, "loss 0x1p-2", "step +1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		got, err := parseLine(line)
		if err != nil {
			if got != (told{}) {
				t.Errorf("told %+v with error %v", got, err)
			}
			return
		}
		if got.step != nil && *got.step < 0 || slices.ContainsFunc(got.amounts[:], func(x *float64) bool { return x != nil && (!finite(*x) || *x < 0) }) {
			t.Errorf("told %+v", flatten(got))
		}
		if c := got.checkpoint; c != nil && (strings.ContainsAny(c.path, "\n\x00") || c.step != nil && *c.step < 0) {
			t.Errorf("checkpoint %+v", *c)
		}
	})
}

// However the bytes come, the lines are the same, and memory is bounded.
func FuzzLines(f *testing.F) {
	f.Add([]byte("step 1\nstep 2\n"), 3)
	f.Add([]byte("\n\n\n"), 1)
	f.Add([]byte(strings.Repeat("x", maxLine+10)+"\nloss 1\n"), 7)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		collect := func(size int) (out []string) {
			r := &lines{take: func(line []byte) bool {
				if len(line) > maxLine+1 {
					t.Errorf("a line of %d bytes", len(line))
				}
				out = append(out, string(line))
				return true
			}}
			for rest := b; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				r.feed(rest[:min(size, len(rest))])
			}
			return out
		}
		if diff := cmp.Diff(collect(len(b)+1), collect(1+(size&0xff))); diff != "" {
			t.Errorf("lines (-at once +in pieces):\n%s", diff)
		}
	})
}
