package gangspec_test

import (
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

func TestRecurring(t *testing.T) {
	for id, want := range map[string]string{
		"train": "train", "resnet-50": "resnet-50", "v100": "v100", "train-7": "train-7", "2026": "2026", "": "",
		"train-2026-01-05": "train", "train_20260105": "train", "train-20260105T1200Z": "train-20260105T1200Z", "train-2026-01-05T12:30:00Z": "train",
		"train/periodic-1767225600": "train", "train/dispatch-1767225600-3f2a9c11": "train", "nightly-1767225600/dispatch-1-a": "nightly",
		"eval-3f2a9c11-0b1c-4d2e-8f3a-0123456789ab": "eval", "llama-3.1-8b": "llama-3.1-8b", "ft-llama-70b-0017": "ft-llama-70b",
	} {
		if got := gangspec.Recurring(id); got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
}

func FuzzRecurring(f *testing.F) {
	f.Add("train-2026-01-05")
	f.Add("/periodic-1")
	f.Fuzz(func(t *testing.T, id string) {
		got := gangspec.Recurring(id)
		if !strings.HasPrefix(id, got) || id != "" && got == "" || gangspec.Recurring(got) != got {
			t.Errorf("%q: %q", id, got)
		}
	})
}
