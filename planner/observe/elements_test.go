package observe

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func split(r io.Reader) (out []string, err error) {
	err = elements(r, func(text []byte) error { out = append(out, string(text)); return nil })
	return out, err
}

func TestElements(t *testing.T) {
	long := `{"a":"` + strings.Repeat("x", 3*chunk) + `"}`
	tests := map[string]struct {
		src  string
		want []string
		err  string
	}{
		"none":                {src: " [ ]\n"},
		"some":                {src: `[{"a":1}, {"b":[{}]}]`, want: []string{`{"a":1}`, `{"b":[{}]}`}},
		"brackets in texts":   {src: `[{"a":"}]\"{"},{"b":"\\"}]`, want: []string{`{"a":"}]\"{"}`, `{"b":"\\"}`}},
		"longer than a chunk": {src: "[" + long + "," + long + "]", want: []string{long, long}},
		"cut":                 {src: `[{"a":1}`, want: []string{`{"a":1}`}, err: "unexpected EOF"},
		"cut in an element":   {src: `[{"a`, err: "unexpected EOF"},
		"nothing":             {src: ``, err: "unexpected EOF"},
		"null":                {src: `null`, err: `unexpected 'n'`},
		"no objects":          {src: `[1]`, err: `unexpected '1'`},
		"another app's":       {src: `<html>`, err: `unexpected '<'`},
		"more than a list":    {src: `[]x`, err: `unexpected 'x'`},
		"too long":            {src: `[{"a":"` + strings.Repeat("x", maxElement+chunk), err: "more than"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := split(strings.NewReader(test.src))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("elements (-want +got):\n%s", diff)
			}
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error = %v, want %q in it", err, test.err)
			}
		})
	}
	broken := errors.New("broken")
	if _, err := split(io.MultiReader(strings.NewReader("[{}"), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("a reader's error became %v", err)
	}
	if err := elements(strings.NewReader("[{}]"), func([]byte) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("the caller's error became %v", err)
	}
}

// What encoding/json takes for a list of objects is taken apart as it does.
func FuzzElements(f *testing.F) {
	for _, src := range []string{"[]", `[{"a":1}, {"b":[{}]}]`, `[{"a":"}]\"{"}]`, `[{"a`, "null", "[1]", "[{}][", `[{"\\":"\u0022"}]`} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		got, err := split(iotest.OneByteReader(strings.NewReader(src)))
		var objects []map[string]any
		var want []json.RawMessage
		if json.Unmarshal([]byte(src), &objects) != nil || json.Unmarshal([]byte(src), &want) != nil || want == nil {
			return
		}
		for _, o := range objects {
			if o == nil {
				return // null, which Nomad does not list
			}
		}
		if err != nil || len(got) != len(want) {
			t.Fatalf("%q: %q, %v; want %q", src, got, err, want)
		}
		for i := range want {
			if got[i] != string(want[i]) {
				t.Errorf("%q: element %d is %q, want %q", src, i, got[i], want[i])
			}
		}
	})
}

// What has not changed is not decoded again, and what has changed is.
func TestRefreshDecodesOnlyChangedAllocations(t *testing.T) {
	f := newFake(t)
	f.putNode(node("a", 2))
	f.putJob(gpuJob("train", 2, 1))
	f.putAlloc(alloc("x1", "train", "workers", "id-a", 0, "a-0"))
	f.putAlloc(alloc("x2", "train", "workers", "id-a", 1, "a-1"))
	o := f.observer(t)
	before := refresh(t, o).Managed[0].Allocs
	changed := alloc("x2", "train", "workers", "id-a", 1, "a-1")
	changed.CreateIndex, changed.ClientStatus = before[1].CreateIndex, "failed"
	f.putAlloc(changed)
	after := refresh(t, o).Managed[0].Allocs
	if len(after) != 2 || after[0] != before[0] || after[1] == before[1] || after[1].ClientStatus != "failed" || before[1].ClientStatus != "running" {
		t.Errorf("allocations = %+v, before %+v; want the first as it was and the second anew", after, before)
	}
	f.change("allocations", func(uint64) { delete(f.allocs, "x1") })
	if got := refresh(t, o).Managed[0].Allocs; len(got) != 1 || got[0] != after[1] {
		t.Errorf("allocations = %+v, want the second alone", got)
	}
}
