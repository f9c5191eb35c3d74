package observe

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/nomad/api"
)

// digest names a text.
type digest [sha256.Size]byte

// allocs lists all allocations. Those whose text is that of a known one are
// not decoded again: of many thousands few change between two looks, and
// decoding them is most of a look's work. seen are the known ones of next time.
func (n nomad) allocs(ctx context.Context, known map[digest]*api.AllocationListStub) (list []*api.AllocationListStub, seen map[digest]*api.AllocationListStub, err error) {
	q := &api.QueryOptions{
		Namespace: api.AllNamespacesNamespace,
		Params:    map[string]string{"resources": "true", "task_states": "false"},
	}
	body, err := n.client.Raw().Response("/v1/allocations", q.WithContext(ctx))
	if err != nil {
		return nil, nil, readError("allocations", err)
	}
	defer body.Close()
	seen = make(map[digest]*api.AllocationListStub, len(known))
	err = elements(body, func(text []byte) error {
		sum := digest(sha256.Sum256(text))
		a := known[sum]
		if a == nil {
			a = new(api.AllocationListStub)
			if err := json.Unmarshal(text, a); err != nil {
				return err
			}
		}
		seen[sum] = a
		list = append(list, a)
		return nil
	})
	if err != nil {
		return nil, nil, readError("allocations", err)
	}
	return list, seen, nil
}

// chunk is how much is read at once, in bytes.
const chunk = 64 << 10

// maxElement bounds one element, in bytes.
const maxElement = 16 << 20

// The states of elements.
const (
	beforeList = iota
	between
	inside
	inText
	escaped
	afterList
)

// elements calls f with the text of each object in a JSON list, which is valid
// until f returns. What is inside of the objects is not checked.
func elements(r io.Reader, f func(text []byte) error) error {
	buf := make([]byte, chunk)
	var text []byte
	state, depth := beforeList, 0
	for {
		n, err := r.Read(buf)
		start := 0
		for i, c := range buf[:n] {
			switch state {
			case inText:
				switch c {
				case '"':
					state = inside
				case '\\':
					state = escaped
				}
			case escaped:
				state = inText
			case inside:
				switch c {
				case '"':
					state = inText
				case '{', '[':
					depth++
				case '}', ']':
					if depth--; depth > 0 {
						continue
					}
					state, text = between, append(text, buf[start:i+1]...)
					if err := f(text); err != nil {
						return err
					}
					text = text[:0]
				}
			default:
				next, ok := outside(state, c)
				if !ok {
					return fmt.Errorf("the answer is no list of objects: unexpected %q", c)
				}
				if state = next; state == inside {
					start, depth = i, 1
				}
			}
		}
		if state == inside || state == inText || state == escaped {
			text = append(text, buf[start:n]...)
		}
		switch {
		case len(text) > maxElement:
			return fmt.Errorf("an element of the answer has more than %d bytes", maxElement)
		case errors.Is(err, io.EOF) && state == afterList:
			return nil
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
}

// outside is the state after a character that is in no element.
func outside(state int, c byte) (next int, ok bool) {
	switch {
	case bytes.IndexByte([]byte(" \t\r\n"), c) >= 0:
		return state, true
	case state == beforeList && c == '[':
		return between, true
	case state == between && c == '{':
		return inside, true
	case state == between && c == ',':
		return between, true
	case state == between && c == ']':
		return afterList, true
	}
	return state, false
}
