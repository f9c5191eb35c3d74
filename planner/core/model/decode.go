package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

// required are the properties without which a snapshot says nothing, by type.
var required = map[string][]string{
	"Snapshot":    {"now", "nodes", "jobs"},
	"Node":        {"id"},
	"GPU":         {"uuid"},
	"Link":        {"kind"},
	"Job":         {"id", "state", "groups"},
	"TaskGroup":   {"name", "count"},
	"DeviceAsk":   {"name", "count"},
	"Constraint":  {"operand"},
	"Alloc":       {"id", "node"},
	"Queue":       {"path"},
	"Member":      {"group", "index", "node"},
	"Preempted":   {"at", "by"},
	"Promised":    {"at", "deadline"},
	"Slice":       {"size", "level"},
	"Reservation": {"name", "kind"},
	"Region":      {"name"},
	"Backfill":    {"for", "start", "until"},
	"ModelSpeed":  {"name", "speed"},
	"SpeedPoint":  {"members", "rate"},
	"SpeedSample": {"members", "rate", "count"},
	"Moving":      {"at", "until", "for", "members"},
	"Division":    {"gpu", "at", "state"},
	"BuyPool":     {"name", "node", "quota"},
	"DataSet":     {"name"},
	"Purchase":    {"id", "pool", "for", "market", "nodes", "price", "ordered", "expect_by", "state"},
	"Spent":       {"amount"},
	"BlockedPool": {"pool", "until"},
	"Bought":      {"pool"},
}

// Operands are those that a Constraint may have.
var Operands = []string{"=", "==", "is", "!=", "not", ">", ">=", "<", "<=", "version", "semver", "regexp", "set_contains", "set_contains_all", "set_contains_any", "distinct_hosts", "distinct_property", "is_set", "is_not_set"}

// DecodeSnapshot reads one snapshot in its JSON form (docs/snapshot.md), and
// nothing after it, and validates it. All faults are reported, each with its
// place: fields that are not known, missing or given twice, values of the wrong
// type, and what cannot be. The names of fields count by letter and case, since
// a misspelt one would otherwise change what is decided.
func DecodeSnapshot(r io.Reader) (*Snapshot, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("%w: decode: empty: want an object", ErrSnapshot)
	}
	d := &decoder{json: json.NewDecoder(bytes.NewReader(data)), data: data, fields: map[reflect.Type]map[string]int{}}
	d.json.UseNumber()
	d.faults.silent = map[string]bool{}
	if at := invalidUTF8(data); at >= 0 {
		d.faults.add("decode: %s: bytes that are not UTF-8; want UTF-8 text", d.position(int64(at)))
	}
	s := &Snapshot{}
	if err := d.value("", reflect.ValueOf(s).Elem()); err != nil {
		d.faults.add("decode: %s", d.broken(err))
		return nil, d.faults.join()
	}
	if _, err := d.json.Token(); !errors.Is(err, io.EOF) {
		d.faults.add("decode: more data after the object, at %s", d.position(d.json.InputOffset()))
	}
	if !d.whole {
		s.validateMembers(&d.faults, s.validate(&d.faults, nil))
	}
	if err := d.faults.join(); err != nil {
		return nil, err
	}
	return s, nil
}

// decoder reads JSON into the types of this package and collects what does not
// fit them.
type decoder struct {
	json   *json.Decoder
	data   []byte
	faults faults
	fields map[reflect.Type]map[string]int
	// whole: it is no object, so nothing of it can be looked at further.
	whole bool
	// open is where the value being read is, for syntax errors.
	open string
}

// value reads the next value into v. The error is one of syntax, after which
// nothing can be read.
func (d *decoder) value(path string, v reflect.Value) error {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	d.open = path
	token, err := d.json.Token()
	if err != nil {
		return err
	}
	if token == nil && v.Kind() == reflect.Slice {
		return nil // how an empty list is written from Go
	}
	delim, _ := token.(json.Delim)
	switch {
	case delim == '{' && v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		return d.object(path, v)
	case delim == '{' && v.Kind() == reflect.Map:
		return d.dictionary(path, v)
	case delim == '[' && v.Kind() == reflect.Slice:
		return d.list(path, v)
	case delim != 0:
		d.wrong(path, v, token)
		return d.skip()
	}
	d.scalar(path, v, token)
	return nil
}

func (d *decoder) object(path string, v reflect.Value) error {
	fields, seen := d.fieldsOf(v.Type()), map[string]bool{}
	for d.json.More() {
		name, err := d.key()
		if err != nil {
			return err
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		field, known := fields[name]
		switch {
		case !known:
			d.faults.add("decode: %s: unknown field%s", at, likeliest(name, fields))
		case seen[name]:
			d.faults.add("decode: %s: is given twice; want it once", at)
		default:
			seen[name] = true
			if err := d.value(at, v.Field(field)); err != nil {
				return err
			}
			continue
		}
		if err := d.skipValue(); err != nil {
			return err
		}
	}
	for _, name := range required[v.Type().Name()] {
		if !seen[name] {
			at := strings.TrimPrefix(path+"."+name, ".")
			d.faults.add("decode: %s: missing: want %s", at, wanted(v.Field(fields[name])))
			d.faults.silent[at] = true
		}
	}
	_, err := d.json.Token() // the closing brace
	return err
}

func (d *decoder) dictionary(path string, v reflect.Value) error {
	v.Set(reflect.MakeMap(v.Type()))
	for d.json.More() {
		name, err := d.key()
		if err != nil {
			return err
		}
		at := fmt.Sprintf("%s[%q]", path, name)
		key := reflect.ValueOf(name)
		if v.MapIndex(key).IsValid() {
			d.faults.add("decode: %s: is given twice; want it once", at)
		}
		value := reflect.New(v.Type().Elem()).Elem()
		if err := d.value(at, value); err != nil {
			return err
		}
		v.SetMapIndex(key, value)
	}
	_, err := d.json.Token()
	return err
}

func (d *decoder) list(path string, v reflect.Value) error {
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	for i := 0; d.json.More(); i++ {
		v.Grow(1)
		v.SetLen(i + 1)
		v.Index(i).SetZero()
		if err := d.value(fmt.Sprintf("%s[%d]", path, i), v.Index(i)); err != nil {
			return err
		}
	}
	_, err := d.json.Token()
	return err
}

func (d *decoder) key() (string, error) {
	token, err := d.json.Token()
	if err != nil {
		return "", err
	}
	name, _ := token.(string)
	return name, nil
}

func (d *decoder) skipValue() error {
	token, err := d.json.Token()
	if err != nil {
		return err
	}
	if delim, ok := token.(json.Delim); ok && (delim == '{' || delim == '[') {
		return d.skip()
	}
	return nil
}

// skip reads to the end of the value that has just been opened.
func (d *decoder) skip() error {
	for depth := 1; depth > 0; {
		token, err := d.json.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	return nil
}

// fieldsOf are a struct's fields by their names in JSON.
func (d *decoder) fieldsOf(t reflect.Type) map[string]int {
	if known := d.fields[t]; known != nil {
		return known
	}
	out := map[string]int{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		out[name] = i
	}
	d.fields[t] = out
	return out
}

func likeliest(name string, fields map[string]int) string {
	lower := strings.ToLower(name)
	if _, known := fields[lower]; known {
		return fmt.Sprintf("; want %q", lower)
	}
	return ""
}

func invalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for at := 0; ; {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size < 2 {
			return at
		}
		at += size
	}
}
