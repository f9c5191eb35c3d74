package record_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// sample is a record; with members > 0 of a gang on whole nodes of 8 GPUs.
func sample(namespace, job string, members int) *record.Record {
	r := &record.Record{
		Namespace: namespace, JobID: job, SpecHash: "abc", Submitter: "ann", Phase: record.PhaseAdmitted, Reason: "fits",
		Submitted: time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC),
		Original:  &api.Job{ID: &job, Meta: map[string]string{"a": "b"}, TaskGroups: []*api.TaskGroup{{Tasks: []*api.Task{{Name: "t", Config: map[string]any{"n": json.Number("9007199254740993")}}}}}},
		Source:    &api.JobSubmission{Source: "job {}", Format: "hcl2"},
	}
	for i := range members {
		m := model.Member{Group: "w", Index: i, Rank: i, Node: fmt.Sprintf("%08x", i*2654435761)}
		for g := range 8 {
			m.GPUs = append(m.GPUs, fmt.Sprintf("GPU-%08x-%04x-%012x", uint32(i*8+g)*2654435761, i, uint64(i*8+g)*11400714819323198485>>16))
		}
		r.Members = append(r.Members, m)
	}
	return r
}

// following is the record of a version of which it is not known whether Nomad has
// it, after one that was being rolled out.
func following(prior *record.Record) *record.Record {
	out := sample("default", "train", 0)
	before := sample("default", "train", 0).Original
	before.Priority = new(10)
	prior.Original.Priority = new(20)
	prior.Rollout = &record.Rollout{Original: before, SpecHash: "old", Rolled: []record.Place{{Group: "w", Index: 1}}}
	out.PriorIndex, out.Prior = 7, prior
	return out
}

func TestStoreRoundTrip(t *testing.T) {
	tests := map[string]*record.Record{
		"with the version before": following(sample("default", "train", 3)),
		"with a large one before": following(sample("default", "train", 512)),
		"small":                   sample("default", "train", 0),
		"a gang of 512":           sample("default", "train", 512),
		"hard names":              sample("ünder/score", strings.Repeat("x/y z~", 170), 2),
		"without its job":         {Namespace: "default", JobID: "bare", Phase: record.PhaseReleased},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			v, open := start(t)
			ctx := t.Context()
			if err := open().Put(ctx, want); err != nil {
				t.Fatal(err)
			}
			if want.ModifyIndex == 0 {
				t.Error("Put did not set the index")
			}
			got, err := open().Get(ctx, want.Namespace, want.JobID)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Get (-want +got):\n%s", diff)
			}
			all, err := open().List(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]*record.Record{want}, all); diff != "" {
				t.Errorf("List (-want +got):\n%s", diff)
			}
			if err := open().Delete(ctx, got); err != nil {
				t.Fatal(err)
			}
			if len(v.data) != 0 {
				t.Errorf("%d Variables stayed", len(v.data))
			}
			if _, err := open().Get(ctx, want.Namespace, want.JobID); !errors.Is(err, record.ErrNotFound) {
				t.Errorf("Get after Delete: %v, want ErrNotFound", err)
			}
			if err := open().Delete(ctx, got); err != nil {
				t.Errorf("Delete again: %v", err)
			}
		})
	}
}

func TestStoreConflicts(t *testing.T) {
	_, open := start(t)
	ctx := t.Context()
	first, second := open(), open()
	a := sample("default", "train", 0)
	if err := first.Put(ctx, a); err != nil {
		t.Fatal(err)
	}
	if err := second.Put(ctx, sample("default", "train", 0)); !errors.Is(err, record.ErrConflict) {
		t.Errorf("Put of a record that exists: %v, want ErrConflict", err)
	}
	b, err := second.Get(ctx, "default", "train")
	if err != nil {
		t.Fatal(err)
	}
	b.Reason = "changed"
	if err := second.Put(ctx, b); err != nil {
		t.Fatal(err)
	}
	if err := first.Put(ctx, a); !errors.Is(err, record.ErrConflict) {
		t.Errorf("Put of an old record: %v, want ErrConflict", err)
	}
	if err := first.Delete(ctx, a); !errors.Is(err, record.ErrConflict) {
		t.Errorf("Delete of an old record: %v, want ErrConflict", err)
	}
	got, err := first.Get(ctx, "default", "train")
	if err != nil || got.Reason != "changed" {
		t.Errorf("Get = %+v, %v", got, err)
	}
}

// TestStoreReadsWhatChanged: a second List reads nothing, and a change of a
// large record's small part reads one Variable.
func TestStoreReadsWhatChanged(t *testing.T) {
	v, open := start(t)
	ctx := t.Context()
	writer, reader := open(), open()
	big := sample("default", "big", 512)
	for _, r := range []*record.Record{big, sample("default", "a", 0), sample("other", "a", 0)} {
		if err := writer.Put(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	list := func() []*record.Record {
		t.Helper()
		out, err := reader.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	list()
	v.reads()
	list()
	if n := v.reads(); n != 0 {
		t.Errorf("List without a change read %d Variables", n)
	}
	big.Phase = record.PhaseRunning
	if err := writer.Put(ctx, big); err != nil {
		t.Fatal(err)
	}
	v.reads()
	if out := list(); out[1].Phase != record.PhaseRunning || len(out[1].Members) != 512 {
		t.Errorf("List has %s with %d members", out[1].Phase, len(out[1].Members))
	}
	if n := v.reads(); n != 1 {
		t.Errorf("List after a small change read %d Variables, want 1", n)
	}
	out := list()
	out[1].Members[0].Node = "mine"
	if list()[1].Members[0].Node == "mine" {
		t.Error("a caller can change what the store remembers")
	}
}

// TestStoreStopsAnywhere: whichever of Put's requests fails, the record read
// afterwards is wholly the old one or the new one, and a second Put goes on.
func TestStoreStopsAnywhere(t *testing.T) {
	for n := 1; ; n++ {
		v, open := start(t)
		ctx := t.Context()
		old := sample("default", "train", 512)
		if err := open().Put(ctx, old); err != nil {
			t.Fatal(err)
		}
		next, err := open().Get(ctx, "default", "train")
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(next.Members)
		want := cmp.Diff(old.Members, next.Members)
		if want == "" {
			t.Fatal("nothing changes")
		}
		left := n
		v.fail = func(method, _ string) int {
			if method == http.MethodGet {
				return 0
			}
			if left--; left == 0 {
				return http.StatusInternalServerError
			}
			return 0
		}
		putErr := open().Put(ctx, next)
		v.fail = nil
		got, err := open().Get(ctx, "default", "train")
		if err != nil {
			t.Fatal(err)
		}
		if cmp.Diff(got.Members, old.Members) != "" && cmp.Diff(got.Members, next.Members) != "" {
			t.Fatalf("request %d failed: the record is neither the old one nor the new one", n)
		}
		got.Reason = "again"
		if err := open().Put(ctx, got); err != nil {
			t.Fatalf("request %d failed: put again: %v", n, err)
		}
		if left > 0 {
			if putErr != nil {
				t.Fatalf("Put without a failure: %v", putErr)
			}
			if n < 3 {
				t.Fatalf("Put has %d requests, the test expects parts", n)
			}
			return
		}
	}
}

func TestStoreReportsDamage(t *testing.T) {
	v, open := start(t)
	ctx := context.Background()
	for _, r := range []*record.Record{sample("default", "a", 0), sample("default", "b", 512), sample("default", "c", 0)} {
		if err := open().Put(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	for path, item := range v.data {
		if strings.Contains(path, "default-a") {
			item.Items["blob"] = "!"
		}
		if strings.HasSuffix(path, "-0") && strings.Contains(path, "default-b") {
			delete(v.data, path)
		}
	}
	got, err := open().List(ctx)
	if !errors.Is(err, record.ErrDamaged) || len(got) != 1 || got[0].JobID != "c" {
		t.Errorf("List = %d records, %v; want c and ErrDamaged", len(got), err)
	}
	v.fail = func(string, string) int { return http.StatusTooManyRequests }
	var status api.UnexpectedResponseError
	if _, err := open().List(ctx); !errors.As(err, &status) || status.StatusCode() != http.StatusTooManyRequests {
		t.Errorf("List: %v, want Nomad's 429", err)
	}
}

func FuzzStoredRecord(f *testing.F) {
	f.Add(`{"namespace":"default","job":"x","phase":"queued"}`, "q1YqSi1OLVGyUlBKVNJRKi5JLC0GAA==", "0123456789abcdef", "")
	f.Add(`{}`, "", "ab", "99999")
	f.Add(``, "AAAA", "../x", "-1")
	f.Fuzz(func(t *testing.T, head, blob, id, parts string) {
		rec, err := record.Parse(api.VariableItems{"record": head, "blob": blob, "blob_id": id, "parts": parts})
		if err != nil && !errors.Is(err, record.ErrDamaged) {
			t.Fatalf("Parse: %v, want ErrDamaged", err)
		}
		if (rec == nil) != (err != nil) {
			t.Fatalf("Parse = %v, %v", rec, err)
		}
	})
}

// TestInForce: which of two versions a job in Nomad is of.
func TestInForce(t *testing.T) {
	prior := sample("default", "train", 2)
	prior.SpecHash = "before"
	same := sample("default", "train", 2)
	tests := map[string]struct {
		prior     *record.Record
		index     uint64
		wantPrior bool
	}{
		"Nomad has this one":             {prior, 8, false},
		"Nomad has the one before still": {prior, 7, true},
		"there is none before":           {nil, 7, false},
		"the same again":                 {same, 7, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rec := sample("default", "train", 0)
			rec.PriorIndex, rec.Prior, rec.ModifyIndex = 7, test.prior, 42
			want := rec
			if test.wantPrior {
				copied := *test.prior
				copied.ModifyIndex, want = 42, &copied
			}
			if diff := cmp.Diff(want, rec.InForce(test.index)); diff != "" {
				t.Errorf("in force (-want +got):\n%s", diff)
			}
		})
	}
}
