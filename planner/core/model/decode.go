package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// DecodeSnapshot reads one snapshot in its JSON form, and nothing after it. A
// field that is not known is an error that names it: a misspelt field would
// otherwise change what is decided. The snapshot is not validated further.
func DecodeSnapshot(r io.Reader) (*Snapshot, error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	var s *Snapshot
	if err := d.Decode(&s); err != nil {
		return nil, decodeError(d, err)
	}
	if s == nil {
		return nil, fmt.Errorf("%w: decode: null: want an object", ErrSnapshot)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: decode: more data after the object, at byte %d", ErrSnapshot, d.InputOffset())
	}
	return s, nil
}

func decodeError(d *json.Decoder, err error) error {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("%w: decode: at byte %d: %w", ErrSnapshot, syntax.Offset, err)
	case errors.As(err, &typ):
		return fmt.Errorf("%w: decode: %s: found a %s, want %s (at byte %d)", ErrSnapshot, typ.Field, typ.Value, typ.Type, typ.Offset)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: decode: empty: want an object", ErrSnapshot)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: decode: ends in the middle: %w", ErrSnapshot, err)
	default:
		return fmt.Errorf("%w: decode: near byte %d: %w", ErrSnapshot, d.InputOffset(), err)
	}
}
