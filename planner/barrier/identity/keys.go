package identity

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// The times of the cached key set.
const (
	// stale is when keys are read anew before they are used: a key that the
	// servers have dropped must not count for ever.
	stale = time.Hour
	// unknownRest is the least time between two reads for a key that is not in
	// the set, so that made-up tokens cannot make the planner flood Nomad.
	unknownRest = 10 * time.Second
	// failedRest is the same while there are no keys at all.
	failedRest = time.Second
)

// keys are the servers' public keys, by their IDs.
type keys struct {
	fetch func(context.Context) ([]byte, error)
	now   func() time.Time

	mu   sync.Mutex
	byID map[string]jose.JSONWebKey
	// read is when they were last read, and tried when that was last tried.
	read, tried time.Time
	err         error
}

// get returns a key. A set that is stale is used on while Nomad does not
// answer; a key that is in none is unknown.
func (k *keys) get(ctx context.Context, id string) (*jose.JSONWebKey, error) {
	// One reads, the others wait for it: they want the same.
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	key, known := k.byID[id]
	old := k.read.IsZero() || now.Sub(k.read) >= stale
	rest := unknownRest
	if k.byID == nil {
		rest = failedRest
	}
	if rested := k.tried.IsZero() || now.Sub(k.tried) >= rest || now.Before(k.tried); (old || !known) && rested {
		k.refresh(ctx, now)
		key, known = k.byID[id]
	}
	switch {
	case known && key.Key != nil:
		return &key, nil
	case k.byID == nil:
		return nil, fmt.Errorf("%w: %w", ErrKeys, k.err)
	}
	return nil, fmt.Errorf("%w: it is signed with the key %q, which is none of Nomad's %d", ErrInvalid, id, len(k.byID))
}

// refresh reads the keys; on an error those that are known stay.
func (k *keys) refresh(ctx context.Context, now time.Time) {
	k.tried = now
	raw, err := k.fetch(ctx)
	if ctx.Err() != nil {
		// The caller has gone; the next one shall not wait for that.
		k.tried = time.Time{}
	}
	if err != nil {
		k.err = err
		return
	}
	next, err := decodeKeys(raw)
	if err != nil {
		k.err = err
		return
	}
	k.byID, k.read, k.err = next, now, nil
}

// decodeKeys reads a key set, and leaves out what cannot be used.
func decodeKeys(raw []byte) (map[string]jose.JSONWebKey, error) {
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(raw, &set); err != nil {
		return nil, fmt.Errorf("decode the key set: %w", err)
	}
	out := map[string]jose.JSONWebKey{}
	for _, key := range set.Keys {
		if key.Valid() && key.IsPublic() {
			out[key.KeyID] = key
		}
	}
	return out, nil
}

// CountKeys is how many keys of a key set can be used.
func CountKeys(raw []byte) (int, error) {
	keys, err := decodeKeys(raw)
	return len(keys), err
}
