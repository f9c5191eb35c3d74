package server

import (
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

const (
	maxVariableBytes = 64 << 10
	minLockTTL       = 10 * time.Second
	maxLockTTL       = 24 * time.Hour
	defaultLockTTL   = 15 * time.Second
	// lockGrace times its TTL is how long a lock holds that is not renewed.
	lockGrace        = 2
	defaultLockDelay = 15 * time.Second
)

var variablePath = regexp.MustCompile(`^[a-zA-Z0-9-_~/]{1,128}$`)

// Conflict is returned when a check-and-set or a lock does not allow a write;
// it holds what is there, without the items of a locked variable.
type Conflict struct{ Variable *api.Variable }

// Error implements error.
func (c *Conflict) Error() string { return "variable conflict" }

// PutVariable writes a variable; cas, if not nil, is the index that it must
// have, 0 for none yet.
func (s *Server) PutVariable(x *api.Variable, cas *uint64) (*api.Variable, error) {
	if err := checkVariable(x); err != nil {
		return nil, err
	}
	err := s.update(state.EventVariable, func(tx *state.Tx) error {
		k := state.Key{Namespace: x.Namespace, ID: x.Path}
		old := tx.Variable(k)
		if err := mayWrite(old, x, cas); err != nil {
			return err
		}
		if old != nil {
			if x.Lock = old.Lock; maps.Equal(old.Items, x.Items) {
				*x = *old // an equal write changes nothing
				return nil
			}
		}
		tx.PutVariable(x)
		return nil
	})
	return x, err
}

// DeleteVariable removes a variable.
func (s *Server) DeleteVariable(k state.Key, lock string, cas *uint64) error {
	return s.update(state.EventVariable, func(tx *state.Tx) error {
		old := tx.Variable(k)
		x := &api.Variable{Namespace: k.Namespace, Path: k.ID}
		if lock != "" {
			x.Lock = &api.VariableLock{ID: lock}
		}
		if err := mayWrite(old, x, cas); err != nil {
			return err
		}
		if old != nil {
			tx.DeleteVariable(k)
		}
		return nil
	})
}

func mayWrite(old, x *api.Variable, cas *uint64) error {
	if cas != nil {
		switch {
		case old == nil && *cas != 0:
			return &Conflict{&api.Variable{Namespace: x.Namespace, Path: x.Path}}
		case old != nil && *cas != old.ModifyIndex:
			c := *old
			if old.Lock != nil {
				c.Lock, c.Items = nil, nil
			}
			return &Conflict{&c}
		}
	}
	if old != nil && old.Lock != nil && (x.Lock == nil || x.Lock.ID != old.Lock.ID) {
		return &Conflict{&api.Variable{Namespace: old.Namespace, Path: old.Path}}
	}
	return nil
}

func checkVariable(x *api.Variable) error {
	size := 0
	for k, v := range x.Items {
		size += len(k) + len(v)
	}
	switch {
	case x.Namespace == api.AllNamespacesNamespace:
		return errorf(400, "can not target wildcard (\"*\")namespace")
	case len(x.Items) == 0 && x.Lock == nil:
		return errorf(400, "empty variables are invalid")
	case size > maxVariableBytes:
		return errorf(400, "variables are limited to 64KiB in total size")
	case !variablePath.MatchString(x.Path):
		return errorf(400, "invalid path %q", x.Path)
	case x.Path == "nomad" || strings.HasPrefix(x.Path, "nomad/") && !strings.HasPrefix(x.Path, "nomad/jobs") && !strings.HasPrefix(x.Path, "nomad/job-templates"):
		return errorf(400, "only paths at \"nomad/jobs\" or \"nomad/job-templates\" and below are valid paths under the top-level \"nomad\" directory")
	}
	return nil
}

// AcquireLock locks a variable, writing its items if there are any. Only the
// holder may write a locked variable, and only while it renews.
func (s *Server) AcquireLock(x *api.Variable) (*api.Variable, error) {
	if x.Lock == nil {
		x.Lock = &api.VariableLock{}
	}
	ttl, err := lockTimes(x.Lock)
	if err != nil {
		return nil, err
	}
	if err := checkVariable(x); err != nil {
		return nil, err
	}
	k := state.Key{Namespace: x.Namespace, ID: x.Path}
	err = s.update(state.EventVariable, func(tx *state.Tx) error {
		old := tx.Variable(k)
		if old != nil && old.Lock != nil && old.Lock.ID != x.Lock.ID {
			return &Conflict{&api.Variable{Namespace: x.Namespace, Path: x.Path}}
		}
		if x.Lock.ID == "" {
			x.Lock.ID = uuid.NewString()
		}
		tx.PutVariable(x)
		s.mu.Lock()
		s.locks[k] = tx.Now.Add(lockGrace * ttl)
		delete(s.delays, k)
		s.mu.Unlock()
		return nil
	})
	return x, err
}

// lockTimes fills in and checks a lock's times and returns the TTL.
func lockTimes(l *api.VariableLock) (time.Duration, error) {
	ttl, delay := defaultLockTTL, defaultLockDelay
	var err error
	if l.TTL != "" {
		if ttl, err = time.ParseDuration(l.TTL); err != nil {
			return 0, errorf(400, "%v", err)
		}
	}
	if l.LockDelay != "" {
		if delay, err = time.ParseDuration(l.LockDelay); err != nil {
			return 0, errorf(400, "%v", err)
		}
	}
	if delay < 0 || ttl < minLockTTL || ttl > maxLockTTL {
		return 0, errorf(400, "TTL must be between 10 seconds and 24 hours")
	}
	l.TTL, l.LockDelay = ttl.String(), delay.String()
	return ttl, nil
}

// RenewLock extends a lock by its TTL.
func (s *Server) RenewLock(k state.Key, id string) (*api.VariableMetadata, error) {
	var meta *api.VariableMetadata
	var err error
	s.store.View(func(v *state.View) {
		x := v.Variable(k)
		switch {
		case x == nil:
			err = errorf(404, "variable doesn't exist")
			return
		case x.Lock == nil:
			err = errorf(400, "variable doesn't hold a lock")
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, held := s.locks[k]; !held || x.Lock.ID != id {
			err = errorf(409, "attempting to modify locked variable")
			return
		}
		ttl, _ := time.ParseDuration(x.Lock.TTL)
		s.locks[k] = s.Now().Add(lockGrace * ttl)
		meta = x.Metadata()
	})
	s.kick()
	return meta, err
}

// ReleaseLock gives a lock back; the items stay.
func (s *Server) ReleaseLock(k state.Key, id string) (*api.Variable, error) {
	var out *api.Variable
	err := s.update(state.EventVariable, func(tx *state.Tx) error {
		x := tx.Variable(k)
		switch {
		case x == nil:
			return errorf(500, "variable doesn't exist")
		case x.Lock == nil:
			return errorf(500, "variable doesn't hold a lock")
		case x.Lock.ID != id:
			return &Conflict{&api.Variable{Namespace: k.Namespace, Path: k.ID, Lock: &api.VariableLock{}}}
		}
		c := *x
		c.Lock = nil
		tx.PutVariable(&c)
		out = &c
		s.mu.Lock()
		delete(s.locks, k)
		s.mu.Unlock()
		return nil
	})
	return out, err
}

// expireLocks ends locks that were not renewed, after their delay: until then
// nobody can take them.
func (s *Server) expireLocks(now time.Time) bool {
	delay := map[state.Key]time.Duration{}
	s.store.View(func(v *state.View) {
		for _, x := range v.VariablesOf("*") {
			if x.Lock != nil {
				d, _ := time.ParseDuration(x.Lock.LockDelay) // checked when it was acquired
				delay[state.Key{Namespace: x.Namespace, ID: x.Path}] = d
			}
		}
	})
	var free []state.Key
	s.mu.Lock()
	for k, t := range s.locks {
		if !t.After(now) {
			delete(s.locks, k)
			s.delays[k] = t.Add(delay[k])
		}
	}
	for k, t := range s.delays {
		if !t.After(now) {
			delete(s.delays, k)
			free = append(free, k)
		}
	}
	s.mu.Unlock()
	for _, k := range free {
		err := s.store.Update(state.EventVariable, now, func(tx *state.Tx) error {
			if x := tx.Variable(k); x != nil && x.Lock != nil {
				c := *x
				c.Lock = nil
				tx.PutVariable(&c)
			}
			return nil
		})
		if err != nil {
			s.logf("expire lock of %s: %v", k.ID, err)
		}
	}
	return len(free) > 0
}

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }
