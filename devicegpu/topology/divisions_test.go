package topology

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDivisionsRoundTrip(t *testing.T) {
	at := time.Date(2031, 5, 17, 12, 0, 0, 0, time.UTC)
	list := []Division{{GPU: "GPU-0", Profiles: []string{"3g.40gb", "2g.20gb"}, At: at}, {GPU: "GPU-1", At: at, Refused: "it is in use", Again: at.Add(time.Minute)}}
	text, err := EncodeDivisions(list)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeDivisions(text)
	if d := cmp.Diff(list, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	list[1].Refused = strings.Repeat("x", 2*maxWhy)
	if text, err = EncodeDivisions(list); err != nil {
		t.Fatal(err)
	}
	if got, err = DecodeDivisions(text); err != nil || len(got[1].Refused) != maxWhy {
		t.Errorf("a long reason: %d, %v", len(got[1].Refused), err)
	}
	for _, bad := range [][]Division{{{}}, make([]Division, MaxGPUs+1)} {
		if _, err := EncodeDivisions(bad); !errors.Is(err, ErrDivisions) {
			t.Errorf("error %v", err)
		}
	}
}

func FuzzDecodeDivisions(f *testing.F) {
	text, err := EncodeDivisions([]Division{{GPU: "GPU-0", Profiles: []string{"3g.40gb"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add("cd1.")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		list, err := DecodeDivisions(s)
		if err != nil {
			if !errors.Is(err, ErrDivisions) {
				t.Errorf("error %v", err)
			}
			return
		}
		if _, err := EncodeDivisions(list); err != nil {
			t.Errorf("%q decodes into what cannot be encoded: %v", s, err)
		}
	})
}
