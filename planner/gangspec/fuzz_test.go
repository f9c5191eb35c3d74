package gangspec_test

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

// FuzzParseMeta: any value of any setting is read or refused with its key,
// and what was read keeps its promises.
func FuzzParseMeta(f *testing.F) {
	for _, seed := range [][2]string{
		{"caravan_gang", "job"}, {"caravan_topology", "require:rack"}, {"caravan_topology", "require:"},
		{"caravan_min", "1"}, {"caravan_max", "99999999999999999999"}, {"caravan_deadline", "2031-05-17T18:00:00Z"},
		{"caravan_duration", "1h"}, {"caravan_budget", "1e309"}, {"caravan_queue", "a/b"}, {"caravan_\xff", ""},
		{"caravan_models", "NVIDIA H100 80GB HBM3=1, NVIDIA A100-SXM4-80GB=0.5"}, {"caravan_models", "=,=,"}, {"caravan_mix", "true"}, {"caravan_share", "allow"}, {"caravan_share", "only"},
		{"caravan_slice", "2"}, {"caravan_regions", "eu, us"}, {"caravan_data", "a,,b"}, {"caravan_slice", "4:rack"}, {"caravan_slice", "-0x:"},
		{"caravan_speed", "1:1, 2:1.9,4:3.5"}, {"caravan_speed", "1:1,1:2"}, {"caravan_speed", ":,:"}, {"caravan_speed", "1:1e-400,99999999999999999999:1"},
	} {
		f.Add(seed[0], seed[1], 4)
	}
	f.Fuzz(func(t *testing.T, key, value string, count int) {
		job := gpuJob("batch", group("g", count, gpuTask("caravan", "gpu", 1)))
		job.Meta = map[string]string{key: value}
		spec, err := gangspec.Parse(job)
		var e *gangspec.Error
		if err != nil && (!errors.As(err, &e) || len(e.Faults) == 0) {
			t.Fatalf("Parse: %v, want an *Error with faults", err)
		}
		if err == nil {
			b := spec.Groups[0]
			if b.Min < 1 || b.Min > b.Count || b.Max < b.Count {
				t.Errorf("bounds %+v", b)
			}
			if spec.Duration < 0 || spec.DeadlineAfter < 0 || spec.Budget < 0 || spec.Queue == "" {
				t.Errorf("spec %+v", spec)
			}
			if s := b.Slice; s.Size != 0 && (s.Size < 2 || b.Count%s.Size != 0 || s.Level == "") {
				t.Errorf("slices %+v of %d", s, b.Count)
			}
			names := map[string]bool{}
			for _, m := range spec.Models {
				if m.Name == "" || names[m.Name] || !(m.Speed > 0) || math.IsInf(m.Speed, 0) {
					t.Errorf("models %+v", spec.Models)
				}
				names[m.Name] = true
			}
		}
		if err == nil {
			for i, s := range spec.Speed {
				if s.Members < 1 || !(s.Rate > 0) || math.IsInf(s.Rate, 0) || i > 0 && s.Members <= spec.Speed[i-1].Members {
					t.Errorf("speed %+v", spec.Speed)
				}
			}
		}
		gangspec.ToModel(job, spec)
	})
}

// FuzzJobJSON: no JSON that the API module takes for a job is a panic, and a
// job's hash outlives a copy and a second submission.
func FuzzJobJSON(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"ID":"x","TaskGroups":[null,{"Tasks":[null,{"Resources":{"Devices":[null]}}]}]}`))
	f.Add([]byte(`{"TaskGroups":[{"Services":[null,{"Checks":[{}],"Connect":{"SidecarService":{}}}],"Networks":[null],"Spreads":[null],"Affinities":[null]}]}`))
	f.Add([]byte(`{"TaskGroups":[{"Tasks":[{"Artifacts":[null],"Templates":[null,{"ChangeMode":"signal"}],"Config":{"a":1e400}}]}],"Update":{},"Meta":{"caravan_gang":"x"}}`))
	f.Add([]byte(`{"TaskGroups":[{"Scaling":{"Min":0,"Policy":{"x":[{}]}},"Volumes":{"v":null}}],"UI":{"Links":[null]},"Multiregion":{}}`))
	full, err := json.Marshal(fullJob())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Fuzz(func(t *testing.T, data []byte) {
		job, err := gangspec.Decode(data)
		if err != nil {
			return
		}
		gangspec.Managed(job, gangspec.DefaultDevices)
		spec, _ := gangspec.Parse(job)
		if err == nil {
			for i, s := range spec.Speed {
				if s.Members < 1 || !(s.Rate > 0) || math.IsInf(s.Rate, 0) || i > 0 && s.Members <= spec.Speed[i-1].Members {
					t.Errorf("speed %+v", spec.Speed)
				}
			}
		}
		gangspec.ToModel(job, spec)
		hash := gangspec.Hash(job)
		again, err := gangspec.Submitted(job)
		if err != nil {
			t.Fatalf("Submitted: %v", err)
		}
		if got := gangspec.Hash(again); got != hash {
			t.Errorf("hash %s became %s", hash, got)
		}
	})
}

// TestDeviceMatching: a pattern that names less matches more.
func TestDeviceMatching(t *testing.T) {
	name := rapid.StringMatching(`[a-z]{1,3}`)
	rapid.Check(t, func(t *rapid.T) {
		vendor, kind, m := name.Draw(t, "vendor"), name.Draw(t, "type"), name.Draw(t, "model")
		full := vendor + "/" + kind + "/" + m
		for _, request := range []string{kind, vendor + "/" + kind, full} {
			for _, pattern := range []string{kind, vendor + "/" + kind, full} {
				if !gangspec.MatchesAny(request, []string{pattern}) {
					t.Fatalf("%q does not match %q", request, pattern)
				}
			}
		}
		if gangspec.MatchesAny(full, []string{"x" + vendor + "/" + kind}) || gangspec.MatchesAny(full, []string{kind + "x"}) {
			t.Fatal("another vendor or type matches")
		}
	})
}

// TestParseBounds: bounds are accepted exactly when 1 ≤ min ≤ count ≤ max.
func TestParseBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low, count, high := rapid.IntRange(-1, 9).Draw(t, "min"), rapid.IntRange(0, 9).Draw(t, "count"), rapid.IntRange(-1, 9).Draw(t, "max")
		g := group("g", count, gpuTask("exec", "gpu", 1))
		g.Meta = map[string]string{"caravan_min": strconv.Itoa(low), "caravan_max": strconv.Itoa(high)}
		_, err := gangspec.Parse(gpuJob("batch", g))
		if want := 1 <= low && low <= count && count <= high; (err == nil) != want {
			t.Fatalf("min %d, count %d, max %d: %v", low, count, high, err)
		}
		if err != nil && !strings.Contains(err.Error(), `group "g"`) {
			t.Fatalf("error %q does not say where", err)
		}
	})
}

// TestHash says what changes a hash and what does not.
func TestHash(t *testing.T) {
	tests := map[string]struct {
		change func(*api.Job)
		same   bool
	}{
		"nothing":               {func(*api.Job) {}, true},
		"state and indexes":     {func(j *api.Job) { j.Status, j.Version, j.ModifyIndex = ptr("dead"), ptr(uint64(4)), ptr(uint64(9)) }, true},
		"the version's tag":     {func(j *api.Job) { j.VersionTag = &api.JobVersionTag{Name: "v1"} }, true},
		"who registered it":     {func(j *api.Job) { j.NomadTokenID = ptr("x") }, true},
		"region and namespace":  {func(j *api.Job) { j.Region, j.Namespace = ptr("eu"), ptr("default") }, true},
		"the text for the UI":   {func(j *api.Job) { j.UI = &api.JobUIConfig{Description: "x"} }, true},
		"defaults written out":  {func(j *api.Job) { j.Canonicalize() }, true},
		"priority":              {func(j *api.Job) { j.Priority = ptr(51) }, false},
		"count":                 {func(j *api.Job) { j.TaskGroups[0].Count = ptr(5) }, false},
		"an empty variable":     {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Env["EMPTY"] = "" }, false},
		"meta":                  {func(j *api.Job) { j.Meta["a"] = "b" }, false},
		"a constraint":          {func(j *api.Job) { j.Constraints = append(j.Constraints, api.NewConstraint("a", "=", "b")) }, false},
		"a repeated constraint": {func(j *api.Job) { g := j.TaskGroups[0]; g.Constraints = append(g.Constraints, g.Constraints...) }, true},
		"devices":               {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = ptr(uint64(7)) }, false},
		"the driver's config":   {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Config["command"] = "other" }, false},
		"the update block": {func(j *api.Job) {
			j.Type, j.TaskGroups[0].Update = ptr("service"), &api.UpdateStrategy{MaxParallel: ptr(7)}
		}, false},
		"a null group": {func(j *api.Job) { j.TaskGroups = append(j.TaskGroups, nil) }, true},
	}
	want := gangspec.Hash(fullJob())
	if want == "" {
		t.Fatal("no hash")
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := fullJob()
			test.change(job)
			if got := gangspec.Hash(job); (got == want) != test.same {
				t.Errorf("same = %v, want %v", got == want, test.same)
			}
		})
	}
}
