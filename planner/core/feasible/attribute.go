package feasible

import (
	"cmp"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// kind is what an attribute's text was read as.
type kind uint8

const (
	kindString kind = iota
	kindBool
	kindInt
	kindFloat
)

// attribute is a typed device attribute, as Nomad's plugins send them and as
// it reads the literal side of a device constraint.
type attribute struct {
	kind kind
	text string
	b    bool
	i    int64
	f    float64
	unit unit
}

// unit is a factor over a base: values are comparable only over one base.
type unit struct {
	base   byte // 0: no unit
	factor int64
	divide bool // the factor divides (milli)
}

const (
	baseByte     = 'B'
	baseByteRate = 'R'
	baseHertz    = 'H'
	baseWatt     = 'W'
)

// units are the suffixes that Nomad knows.
var units = unitTable()

func unitTable() map[string]unit {
	table := map[string]unit{
		"MHz": {base: baseHertz, factor: 1e6},
		"GHz": {base: baseHertz, factor: 1e9},
		"mW":  {base: baseWatt, factor: 1e3, divide: true},
		"W":   {base: baseWatt, factor: 1},
		"kW":  {base: baseWatt, factor: 1e3},
		"MW":  {base: baseWatt, factor: 1e6},
		"GW":  {base: baseWatt, factor: 1e9},
	}
	add := func(name string, factor int64) {
		table[name] = unit{base: baseByte, factor: factor}
		table[name+"/s"] = unit{base: baseByteRate, factor: factor}
	}
	binary, decimal := int64(1), int64(1)
	for _, prefix := range "KMGTPE" {
		binary, decimal = binary<<10, decimal*1000
		add(string(prefix)+"iB", binary)
		add(string(prefix)+"B", decimal)
	}
	add("kB", 1000)
	return table
}

// longestUnit is the length of the longest suffix in units ("GiB/s").
const longestUnit = 5

// parseAttribute reads a value the way Nomad reads a literal: a number with an
// optional unit, else a truth value, else text. A value in double quotes is
// text whatever it looks like: the snapshot's way to say that the plugin sent
// a string ("535.104").
func parseAttribute(s string) attribute {
	if n := len(s); n >= 2 && s[0] == '"' && s[n-1] == '"' {
		if text, err := strconv.Unquote(s); err == nil {
			return attribute{text: text}
		}
	}
	return parseLiteral(s)
}

func parseLiteral(s string) attribute {
	if s == "" {
		return attribute{}
	}
	number, u := s, unit{}
	if unicode.IsLetter(rune(s[len(s)-1])) {
		for n := min(longestUnit, len(s)); n > 0; n-- {
			if found, ok := units[s[len(s)-n:]]; ok {
				number, u = strings.TrimSpace(s[:len(s)-n]), found
				break
			}
		}
	}
	if i, err := strconv.ParseInt(number, 10, 64); err == nil {
		return attribute{kind: kindInt, text: s, i: i, unit: u}
	}
	if f, err := strconv.ParseFloat(number, 64); err == nil {
		return attribute{kind: kindFloat, text: s, f: f, unit: u}
	}
	if b, err := strconv.ParseBool(s); err == nil {
		return attribute{kind: kindBool, text: s, b: b}
	}
	return attribute{text: s}
}

// QuoteAttribute is the form in which a string attribute of a device plugin
// belongs into model.GPU.Attributes: quoted if it would otherwise be read as a
// number or a truth value, else as it is.
func QuoteAttribute(s string) string {
	if parseAttribute(s).kind == kindString && !strings.HasPrefix(s, `"`) {
		return s
	}
	return strconv.Quote(s)
}

// compare orders two attributes; false if they cannot be compared. Truth
// values are equal (0) or not (1).
func (a attribute) compare(b attribute) (int, bool) {
	if a.unit.base != b.unit.base {
		return 0, false
	}
	switch {
	case a.kind == kindString:
		return strings.Compare(a.text, b.text), b.kind == kindString
	case a.kind == kindBool:
		if b.kind != kindBool || a.b == b.b {
			return 0, b.kind == kindBool
		}
		return 1, true
	case b.kind != kindInt && b.kind != kindFloat:
		return 0, false
	case a.kind == kindInt && b.kind == kindInt:
		return cmp.Compare(a.integer(), b.integer()), true
	}
	x, y := a.float(), b.float()
	if x == nil || y == nil {
		return 0, false
	}
	return x.Cmp(y), true
}

// integer is the value in its base unit. It overflows and truncates as Nomad's
// does: what counts is to agree with it.
func (a attribute) integer() int64 {
	switch {
	case a.unit.base == 0:
		return a.i
	case a.unit.divide:
		return a.i / a.unit.factor
	default:
		return a.i * a.unit.factor
	}
}

// floatPrecision keeps products of a float and a unit exact.
const floatPrecision = 256

// float is the value in its base unit, nil for not-a-number.
func (a attribute) float() *big.Float {
	f := new(big.Float).SetPrec(floatPrecision)
	switch {
	case a.kind == kindInt:
		f.SetInt64(a.i)
	case math.IsNaN(a.f):
		return nil
	default:
		f.SetFloat64(a.f)
	}
	if a.unit.base == 0 {
		return f
	}
	factor := new(big.Float).SetPrec(floatPrecision).SetInt64(a.unit.factor)
	if a.unit.divide {
		return f.Quo(f, factor)
	}
	return f.Mul(f, factor)
}
