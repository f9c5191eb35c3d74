// Package attr holds the typed attributes by which device plugins and drivers
// describe themselves to Nomad, and that job constraints compare.
package attr

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Kind is the type of a Value.
type Kind int

// The kinds. None is the zero Value, which is not valid.
const (
	KindNone Kind = iota
	KindInt
	KindFloat
	KindString
	KindBool
)

// Value is one attribute's value: an integer or float with an optional unit, a
// string or a boolean.
type Value struct {
	kind Kind
	num  int64
	flt  float64
	str  string
	unit string
}

// Int is an integer without a unit.
func Int(n int64) Value { return Value{kind: KindInt, num: n} }

// Float is a float without a unit.
func Float(f float64) Value { return Value{kind: KindFloat, flt: f} }

// String is a string.
func String(s string) Value { return Value{kind: KindString, str: s} }

// Bool is a boolean.
func Bool(b bool) Value {
	v := Value{kind: KindBool}
	if b {
		v.num = 1
	}
	return v
}

// IntUnit is an integer of one of Units.
func IntUnit(n int64, unit string) Value { return Value{kind: KindInt, num: n, unit: unit} }

// FloatUnit is a float of one of Units.
func FloatUnit(f float64, unit string) Value { return Value{kind: KindFloat, flt: f, unit: unit} }

// Kind returns which of the values is set.
func (v Value) Kind() Kind { return v.kind }

// Unit returns the unit, "" without one.
func (v Value) Unit() string { return v.unit }

// AsInt returns the integer of a KindInt.
func (v Value) AsInt() (int64, bool) { return v.num, v.kind == KindInt }

// AsFloat returns the float of a KindFloat.
func (v Value) AsFloat() (float64, bool) { return v.flt, v.kind == KindFloat }

// AsString returns the string of a KindString.
func (v Value) AsString() (string, bool) { return v.str, v.kind == KindString }

// AsBool returns the boolean of a KindBool.
func (v Value) AsBool() (bool, bool) { return v.num == 1, v.kind == KindBool }

// Text prints the value as Nomad prints it: a number is followed by its unit
// without a space ("80GiB").
func (v Value) Text() string {
	switch v.kind {
	case KindInt:
		return strconv.FormatInt(v.num, 10) + v.unit
	case KindFloat:
		return strconv.FormatFloat(v.flt, 'g', -1, 64) + v.unit
	case KindString:
		return v.str
	case KindBool:
		return strconv.FormatBool(v.num == 1)
	default:
		return ""
	}
}

// Validate says what Nomad would refuse. One refused attribute makes Nomad
// drop every device of the plugin until the agent restarts, so it is called
// before anything is sent. NaN and infinities pass Nomad's own check and then
// break its JSON API, so they are refused here.
func (v Value) Validate() error {
	switch v.kind {
	case KindNone:
		return fmt.Errorf("no value; set an int, float, string or bool")
	case KindString, KindBool:
		if v.unit != "" {
			return fmt.Errorf("unit %q on a string or bool; only numbers have units", v.unit)
		}
	case KindFloat:
		if math.IsNaN(v.flt) || math.IsInf(v.flt, 0) {
			return fmt.Errorf("float %v is not a finite number", v.flt)
		}
	}
	if v.unit != "" {
		if _, ok := units[v.unit]; !ok {
			return fmt.Errorf("unknown unit %q; allowed: %s", v.unit, strings.Join(Units(), " "))
		}
	}
	return nil
}

// Compare compares two values as Nomad's constraints do: -1, 0 or 1, and false
// if they cannot be compared. Numbers compare across int and float, and across
// units of one dimension; booleans are only equal (0) or not (1).
func (v Value) Compare(o Value) (int, bool) {
	vu, vok := units[v.unit]
	ou, ook := units[o.unit]
	if vok != ook || vu.dimension != ou.dimension {
		return 0, false
	}
	switch {
	case v.kind == KindBool && o.kind == KindBool:
		if v.num == o.num {
			return 0, true
		}
		return 1, true
	case v.kind == KindString && o.kind == KindString:
		return strings.Compare(v.str, o.str), true
	}
	a, b := v.base(), o.base()
	if a == nil || b == nil {
		return 0, false
	}
	return a.Cmp(b), true
}

// base is the number in its dimension's base unit, exactly; nil if it is none.
func (v Value) base() *big.Rat {
	r := new(big.Rat)
	switch v.kind {
	case KindInt:
		r.SetInt64(v.num)
	case KindFloat:
		if r.SetFloat64(v.flt) == nil {
			return nil
		}
	default:
		return nil
	}
	if u, ok := units[v.unit]; ok {
		r.Mul(r, u.factor)
	}
	return r
}

// Parse reads a value as it stands in a constraint: a number with an optional
// unit, a boolean as Go's strconv reads it, or else a string.
func Parse(s string) Value {
	number, unit := splitUnit(s)
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		return IntUnit(n, unit)
	}
	if f, err := strconv.ParseFloat(number, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
		return FloatUnit(f, unit)
	}
	if b, err := strconv.ParseBool(s); err == nil {
		return Bool(b)
	}
	return String(s)
}
