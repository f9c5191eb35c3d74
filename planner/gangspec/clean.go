package gangspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/hashicorp/nomad/api"
)

// Copy returns a deep copy of the job. Numbers of unknown type inside of
// driver configurations keep every digit.
func Copy(job *api.Job) (*api.Job, error) {
	if job == nil {
		return nil, nil
	}
	data, err := json.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("copy job %q: %w", deref(job.ID), err)
	}
	return Decode(data)
}

// Decode reads a job's JSON form, with every digit of the numbers inside of
// driver configurations.
func Decode(data []byte) (*api.Job, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	job := new(api.Job)
	if err := dec.Decode(job); err != nil {
		return nil, fmt.Errorf("decode job: %w", err)
	}
	dropNil(reflect.ValueOf(job))
	return job, nil
}

// dropNil takes the nil elements (JSON's null) out of every list below v:
// nobody means anything by them, and Nomad's API module trips over them.
func dropNil(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			dropNil(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				dropNil(v.Field(i))
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if e := v.MapIndex(key); e.Kind() == reflect.Pointer {
				if e.IsNil() {
					v.SetMapIndex(key, reflect.Value{})
				} else {
					dropNil(e)
				}
			}
		}
	case reflect.Slice:
		kind := v.Type().Elem().Kind()
		if kind != reflect.Pointer && kind != reflect.Struct {
			return
		}
		kept := v.Slice(0, 0)
		for i := range v.Len() {
			e := v.Index(i)
			if kind == reflect.Pointer && e.IsNil() {
				continue
			}
			dropNil(e)
			kept = reflect.Append(kept, e)
		}
		if kept.Len() < v.Len() {
			v.Set(kept)
		}
	}
}

// Submitted returns a copy of the job without what Nomad's servers set and a
// registration must not or need not carry: state, indexes, the version's tag
// (which would stick to every later version), the submitter's token. Gate and
// pins stay, see package rewrite.
func Submitted(job *api.Job) (*api.Job, error) {
	out, err := Copy(job)
	if err != nil || out == nil {
		return out, err
	}
	out.Stop, out.ParentID, out.DispatchIdempotencyToken, out.NomadTokenID = nil, nil, nil, nil
	out.Status, out.StatusDescription, out.Stable = nil, nil, nil
	out.Version, out.SubmitTime, out.VersionTag = nil, nil, nil
	out.CreateIndex, out.ModifyIndex, out.JobModifyIndex = nil, nil, nil
	for _, g := range out.TaskGroups {
		serverScaling(g.Scaling)
		// Nomad appends its implied constraints again and again.
		g.Constraints = unrepeated(g.Constraints)
		for _, t := range g.Tasks {
			for _, s := range t.ScalingPolicies {
				serverScaling(s)
			}
		}
	}
	return out, nil
}

func serverScaling(s *api.ScalingPolicy) {
	if s != nil {
		s.ID, s.Namespace, s.Target, s.CreateIndex, s.ModifyIndex = "", "", nil, 0, 0
	}
}

// unrepeated drops repetitions of a constraint, which change nothing.
func unrepeated(in []*api.Constraint) []*api.Constraint {
	var out []*api.Constraint
	seen := map[api.Constraint]bool{}
	for _, c := range in {
		if seen[*c] {
			continue
		}
		seen[*c] = true
		out = append(out, c)
	}
	return out
}
