package topology

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSharesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Share {
			return Share{
				GPU: rapid.StringN(1, 40, -1).Draw(t, "gpu"), Index: rapid.IntRange(0, MaxGPUs-1).Draw(t, "index"),
				Slices: rapid.IntRange(MinSlices, MaxSlices).Draw(t, "slices"), MemoryMiB: rapid.Uint64Range(0, maxShareMiB).Draw(t, "memory"),
			}
		}), 1, 16, func(s Share) string { return s.GPU }).Draw(t, "list")
		s, err := EncodeShares(list)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeShares(s)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(list, got); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	})
}

func TestSharesRefused(t *testing.T) {
	good := Share{GPU: "GPU-1", Slices: 4}
	tests := map[string]struct {
		list []Share
		want string
	}{
		"no GPU":          {[]Share{{Slices: 4}}, "share 0 lacks its GPU"},
		"twice":           {[]Share{good, good}, `share 1 has the GPU "GPU-1"`},
		"one slice":       {[]Share{{GPU: "GPU-1", Slices: 1}}, "1 slices"},
		"too many slices": {[]Share{{GPU: "GPU-1", Slices: MaxSlices + 1}}, "33 slices"},
		"bad index":       {[]Share{{GPU: "GPU-1", Slices: 4, Index: -1}}, "of GPU -1"},
		"too much memory": {[]Share{{GPU: "GPU-1", Slices: 4, MemoryMiB: maxShareMiB + 1}}, "MiB"},
		"too many":        {make([]Share, MaxGPUs+1), "at most 128"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := EncodeShares(tt.list); !errors.Is(err, ErrShares) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	for _, s := range []string{"", "ct1.AAAA", "cs2.AAAA", "cs1.", "cs1.AAAAAAAA"} {
		if _, err := DecodeShares(s); !errors.Is(err, ErrShares) {
			t.Errorf("%q: error %v", s, err)
		}
	}
}

func TestSliceID(t *testing.T) {
	if got := SliceID("GPU-1", 3); got != "GPU-1::3" {
		t.Errorf("ID %q", got)
	}
	for id, want := range map[string]struct {
		gpu string
		n   int
		ok  bool
	}{
		"GPU-1::0": {"GPU-1", 0, true}, "GPU-1::31": {"GPU-1", 31, true}, "a::b::2": {"a::b", 2, true},
		"GPU-1": {}, "::1": {}, "GPU-1::": {}, "GPU-1::-1": {}, "GPU-1::+1": {}, "GPU-1::01": {}, "GPU-1::32": {}, "GPU-1::x": {},
	} {
		if gpu, n, ok := ParseSliceID(id); gpu != want.gpu || n != want.n || ok != want.ok {
			t.Errorf("%q: %q, %d, %v; want %+v", id, gpu, n, ok, want)
		}
	}
}

func FuzzDecodeShares(f *testing.F) {
	s, err := EncodeShares([]Share{{GPU: "GPU-1", Index: 2, Slices: 4, MemoryMiB: 81920}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s)
	f.Add(s[:len(s)-2])
	f.Fuzz(func(t *testing.T, s string) {
		list, err := DecodeShares(s)
		if err != nil {
			return
		}
		if _, err := EncodeShares(list); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzParseSliceID(f *testing.F) {
	f.Add("GPU-1::2")
	f.Add("GPU-1::")
	f.Fuzz(func(t *testing.T, id string) {
		if gpu, n, ok := ParseSliceID(id); ok && SliceID(gpu, n) != id {
			t.Fatalf("%q is read as slice %d of %q", id, n, gpu)
		}
	})
}
