package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// scalar sets v to a value that is no object and no list.
func (d *decoder) scalar(path string, v reflect.Value, token json.Token) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		d.time(path, v, token)
		return
	}
	switch x := token.(type) {
	case string:
		if v.Kind() == reflect.String {
			d.text(path, v, x)
			return
		}
	case bool:
		if v.Kind() == reflect.Bool {
			v.SetBool(x)
			return
		}
	case json.Number:
		if d.number(path, v, x.String()) {
			return
		}
	}
	d.wrong(path, v, token)
}

func (d *decoder) text(path string, v reflect.Value, x string) {
	if strings.ContainsRune(x, utf8.RuneError) {
		// Half a surrogate pair is read as this too, so two names may become one.
		d.fault(path, "%s: %q: is no Unicode text, or has U+FFFD in it; want text without", path, x)
	}
	v.SetString(x)
	if _, field, _ := lastOf(path); field == "operand" && !slices.Contains(Operands, x) {
		d.fault(path, "%s: %q: want one of %s", path, x, strings.Join(Operands, " "))
	}
}

// number sets v; false if v is no number.
func (d *decoder) number(path string, v reflect.Value, x string) bool {
	switch v.Kind() {
	case reflect.Float64:
		f, err := strconv.ParseFloat(x, 64)
		if err != nil {
			d.fault(path, "%s: %s: is beyond every number that can be kept", path, x)
		}
		v.SetFloat(f)
		return true
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(x, 10, 64)
		if err == nil {
			v.SetInt(n)
			return true
		}
		// 1.0 and 1e3 are integers too.
		if len(x) > maxDigits {
			d.fault(path, "%s: a number of %d digits: want an integer of at most 64 bits", path, len(x))
			return true
		}
		f, err := strconv.ParseFloat(x, 64)
		r, ok := new(big.Rat), false
		if err == nil && math.Abs(f) < 1<<63 && (f == 0 || math.Abs(f) > 1e-30) {
			r, ok = r.SetString(x)
		}
		if !ok || !r.IsInt() || !r.Num().IsInt64() {
			d.fault(path, "%s: %s: want an integer of at most 64 bits", path, x)
			return true
		}
		v.SetInt(r.Num().Int64())
		return true
	default:
		return false
	}
}

// maxDigits bounds the numbers that are read exactly.
const maxDigits = 64

func (d *decoder) time(path string, v reflect.Value, token json.Token) {
	text, ok := token.(string)
	if !ok {
		d.wrong(path, v, token)
		return
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d.fault(path, "%s: %q: want a date and time like 2026-01-02T03:04:05Z", path, text)
		return
	}
	v.Set(reflect.ValueOf(at))
}

// fault reports something about a value that is not read.
func (d *decoder) fault(path, format string, args ...any) {
	d.faults.add("decode: "+format, args...)
	d.faults.silent[path] = true
}

func (d *decoder) wrong(path string, v reflect.Value, token json.Token) {
	if path == "" {
		d.whole = true
		d.faults.add("decode: found %s, want an object", found(token))
		return
	}
	d.fault(path, "%s: found %s, want %s", path, found(token), wanted(v))
}

func found(token json.Token) string {
	switch x := token.(type) {
	case json.Delim:
		if x == '[' {
			return "a list"
		}
		return "an object"
	case string:
		return "a string"
	case bool:
		return "a truth value"
	case json.Number:
		return "a number"
	default:
		return "null"
	}
}

func wanted(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return "a date and time like 2026-01-02T03:04:05Z"
		}
		return "an object"
	case reflect.Map:
		return "an object"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	default:
		return "an integer"
	}
}

// lastOf splits a path at its last dot.
func lastOf(path string) (before, last string, found bool) {
	if at := strings.LastIndexByte(path, '.'); at >= 0 {
		return path[:at], path[at+1:], true
	}
	return "", path, false
}

// broken says where and how the syntax is broken.
func (d *decoder) broken(err error) string {
	in := ""
	if d.open != "" {
		in = " (in " + d.open + ")"
	}
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("%s%s: %v", d.position(syntax.Offset), in, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "ends in the middle" + in
	default:
		return fmt.Sprintf("%s%s: %v", d.position(d.json.InputOffset()), in, err)
	}
}

// position is a place in the text, for people.
func (d *decoder) position(offset int64) string {
	before := d.data[:min(max(offset, 0), int64(len(d.data)))]
	line := bytes.Count(before, []byte("\n")) + 1
	return fmt.Sprintf("line %d column %d", line, len(before)-bytes.LastIndexByte(before, '\n'))
}
