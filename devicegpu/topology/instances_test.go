package topology

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestInstancesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Instance {
			return Instance{
				UUID: rapid.StringN(1, 40, -1).Draw(t, "uuid"), Parent: rapid.StringN(1, 40, -1).Draw(t, "parent"),
				Index: rapid.IntRange(0, MaxGPUs-1).Draw(t, "index"), Profile: rapid.StringN(1, 20, -1).Draw(t, "profile"),
				GPUInstance: rapid.IntRange(0, 14).Draw(t, "gi"), ComputeInstance: rapid.IntRange(0, 7).Draw(t, "ci"),
			}
		}), 1, 20, func(i Instance) string { return i.UUID }).Draw(t, "list")
		s, err := EncodeInstances(list)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeInstances(s)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(list, got); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	})
}

func TestInstancesRefused(t *testing.T) {
	good := Instance{UUID: "MIG-1", Parent: "GPU-1", Profile: "1g.5gb"}
	tests := map[string]struct {
		list []Instance
		want string
	}{
		"no UUID":   {[]Instance{{Parent: "GPU-1", Profile: "1g.5gb"}}, "instance 0 lacks its UUID"},
		"twice":     {[]Instance{good, good}, `instance 1 has the UUID "MIG-1"`},
		"bad index": {[]Instance{{UUID: "MIG-1", Parent: "GPU-1", Profile: "1g.5gb", Index: -1}}, "of GPU -1"},
		"too many":  {make([]Instance, MaxInstances+1), "at most 1024"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := EncodeInstances(tt.list); !errors.Is(err, ErrInstances) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	for _, s := range []string{"", "ct1.AAAA", "cm2.AAAA", "cm1.", "cm1.AAAAAAAA"} {
		if _, err := DecodeInstances(s); !errors.Is(err, ErrInstances) {
			t.Errorf("%q: error %v", s, err)
		}
	}
}

func FuzzDecodeInstances(f *testing.F) {
	s, err := EncodeInstances([]Instance{{UUID: "MIG-1", Parent: "GPU-1", Profile: "3g.20gb", GPUInstance: 2}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s)
	f.Add(s[:len(s)-2])
	f.Fuzz(func(t *testing.T, s string) {
		list, err := DecodeInstances(s)
		if err != nil {
			return
		}
		if _, err := EncodeInstances(list); err != nil {
			t.Fatal(err)
		}
	})
}
