package record

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"
)

var (
	// ErrNotFound: the job has no record.
	ErrNotFound = errors.New("no record")
	// ErrConflict: somebody else wrote the record since it was read; look again.
	ErrConflict = errors.New("the record was written by somebody else")
	// ErrDamaged: what is stored cannot be read as a record.
	ErrDamaged = errors.New("the stored record cannot be read")
)

// Root is the path below which the records' Variables are.
const Root = "caravan/jobs"

// readers bounds how many Variables are read at once.
const readers = 8

// Store keeps records in Nomad Variables. A record is one Variable, its head,
// written by check-and-set; what does not fit there lies in parts beside it,
// named by their content, so that the head's write is the whole record's.
// A Store remembers what it has read by the Variables' indexes and may be used
// by several goroutines.
type Store struct {
	vars      *api.Variables
	namespace string

	mu   sync.Mutex
	seen map[string]*entry
}

// NewStore returns a store in a Nomad namespace; "" is "default".
func NewStore(client *api.Client, namespace string) *Store {
	if namespace == "" {
		namespace = api.DefaultNamespace
	}
	return &Store{vars: client.Variables(), namespace: namespace, seen: map[string]*entry{}}
}

func (s *Store) query(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{Namespace: s.namespace}).WithContext(ctx)
}

func (s *Store) write(ctx context.Context) *api.WriteOptions {
	return (&api.WriteOptions{Namespace: s.namespace}).WithContext(ctx)
}

// Get reads a job's record; ErrNotFound if it has none. The record is the
// caller's own, except for Original and Source, which nobody may change.
func (s *Store) Get(ctx context.Context, namespace, job string) (*Record, error) {
	rec, err := s.read(ctx, headPath(namespace, job))
	if err != nil {
		return nil, fmt.Errorf("read record of job %q in namespace %q: %w", job, namespace, err)
	}
	return rec, nil
}

// List reads all records, by namespace and job. It reads only what was written
// since it was read last. Records that are damaged are left out; the error then
// wraps ErrDamaged and names them, and the others are returned with it.
func (s *Store) List(ctx context.Context) ([]*Record, error) {
	metas, _, err := s.vars.PrefixList(Root+"/", s.query(ctx))
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	heads := map[string]uint64{}
	for _, m := range metas {
		if isHead(m.Path) {
			heads[m.Path] = m.ModifyIndex
		}
	}
	found := map[string]*Record{}
	var missing []string
	s.mu.Lock()
	for path := range s.seen {
		if _, ok := heads[path]; !ok {
			delete(s.seen, path)
		}
	}
	for path, index := range heads {
		if e := s.seen[path]; e != nil && e.rec.ModifyIndex == index {
			found[path] = e.record()
		} else {
			missing = append(missing, path)
		}
	}
	s.mu.Unlock()
	damaged, err := s.readAll(ctx, missing, found)
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	out := slices.SortedFunc(maps.Values(found), func(a, b *Record) int {
		if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.JobID, b.JobID)
	})
	return out, damaged
}

// readAll reads the heads into found, several at once.
func (s *Store) readAll(ctx context.Context, paths []string, found map[string]*Record) (damaged, err error) {
	slices.Sort(paths)
	faults := make([]error, len(paths))
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, path := range paths {
		group.Go(func() error {
			rec, err := s.read(ctx, path)
			switch {
			case errors.Is(err, ErrNotFound):
				return nil // deleted since the list
			case errors.Is(err, ErrDamaged):
				faults[i] = fmt.Errorf("%s: %w", path, err)
				return nil
			case err != nil:
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			found[path] = rec
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return errors.Join(faults...), nil
}

// read reads a head and its parts.
func (s *Store) read(ctx context.Context, path string) (*Record, error) {
	head, _, err := s.vars.Peek(path, s.query(ctx))
	if err != nil {
		return nil, err
	}
	if head == nil {
		s.forget(path)
		return nil, ErrNotFound
	}
	known := s.known(path)
	if known != nil && known.rec.ModifyIndex == head.ModifyIndex {
		return known.record(), nil
	}
	h, err := parseHead(head.Items)
	if err != nil {
		return nil, err
	}
	var content blob
	if known != nil && known.blobID == h.blobID {
		content = blobOf(&known.rec)
	} else if content, err = s.readBlob(ctx, path, h); err != nil {
		return nil, err
	}
	return s.remember(path, h.entry(content, head.ModifyIndex)), nil
}

func (s *Store) readBlob(ctx context.Context, path string, h *head) (blob, error) {
	packed := h.inline
	if h.parts > 0 {
		var err error
		if packed, err = s.readParts(ctx, path, h); err != nil {
			return blob{}, err
		}
	}
	return h.decode(packed)
}

func (s *Store) readParts(ctx context.Context, path string, h *head) (string, error) {
	var out strings.Builder
	for i := range h.parts {
		part, _, err := s.vars.Peek(partPath(path, h.blobID, i), s.query(ctx))
		if err != nil {
			return "", err
		}
		if part == nil {
			return "", fmt.Errorf("%w: part %d of %d is missing", ErrDamaged, i+1, h.parts)
		}
		out.WriteString(part.Items[itemPart])
	}
	return out.String(), nil
}

// Put writes the record if nobody has written it since it was read (or, with
// ModifyIndex 0, if there is none), and sets its ModifyIndex; else ErrConflict.
func (s *Store) Put(ctx context.Context, rec *Record) error {
	path := headPath(rec.Namespace, rec.JobID)
	if err := s.put(ctx, path, rec); err != nil {
		return fmt.Errorf("write record of job %q in namespace %q: %w", rec.JobID, rec.Namespace, err)
	}
	return nil
}

func (s *Store) put(ctx context.Context, path string, rec *Record) error {
	items, parts, blobID, err := encode(rec)
	if err != nil {
		return err
	}
	known := s.known(path)
	if known == nil || known.rec.ModifyIndex != rec.ModifyIndex || known.blobID != blobID {
		for i, part := range parts {
			v := &api.Variable{Namespace: s.namespace, Path: partPath(path, blobID, i), Items: api.VariableItems{itemPart: part}}
			if _, _, err := s.vars.Update(v, s.write(ctx)); err != nil {
				return err
			}
		}
	}
	v := &api.Variable{Namespace: s.namespace, Path: path, Items: items, ModifyIndex: rec.ModifyIndex}
	var out *api.Variable
	if rec.ModifyIndex == 0 {
		out, _, err = s.vars.CheckedCreate(v, s.write(ctx))
	} else {
		out, _, err = s.vars.CheckedUpdate(v, s.write(ctx))
	}
	if err != nil {
		s.forget(path)
		return conflict(err)
	}
	rec.ModifyIndex = out.ModifyIndex
	s.remember(path, &entry{rec: *rec, blobID: blobID, parts: len(parts)})
	if known != nil && known.parts > 0 && known.blobID != blobID {
		// The old parts hurt nobody; what cannot be removed now goes with Delete.
		s.deleteParts(ctx, path, known.blobID)
	}
	return nil
}

// Delete removes the record if nobody has written it since it was read; else
// ErrConflict. A record that is gone already is no error.
func (s *Store) Delete(ctx context.Context, rec *Record) error {
	path := headPath(rec.Namespace, rec.JobID)
	defer s.forget(path)
	_, err := s.vars.CheckedDelete(path, rec.ModifyIndex, s.write(ctx))
	var cas api.ErrCASConflict
	if errors.As(err, &cas) && cas.Conflict != nil && cas.Conflict.ModifyIndex == 0 {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("delete record of job %q in namespace %q: %w", rec.JobID, rec.Namespace, conflict(err))
	}
	s.deleteParts(ctx, path, "")
	return nil
}

// deleteParts removes a record's parts with that content, or all of them.
func (s *Store) deleteParts(ctx context.Context, path, blobID string) {
	metas, _, err := s.vars.PrefixList(path+"/"+blobID, s.query(ctx))
	if err != nil {
		return
	}
	for _, m := range metas {
		if _, err := s.vars.Delete(m.Path, s.write(ctx)); err != nil {
			return
		}
	}
}

func conflict(err error) error {
	var cas api.ErrCASConflict
	if errors.As(err, &cas) {
		return ErrConflict
	}
	return err
}

func (s *Store) known(path string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[path]
}

// remember keeps the entry, and returns its record for the caller.
func (s *Store) remember(path string, e *entry) *Record {
	e.rec = *e.record()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[path] = e
	return e.record()
}

func (s *Store) forget(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, path)
}
