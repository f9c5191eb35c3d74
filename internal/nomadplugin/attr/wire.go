package attr

import (
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/structspb"
)

// ToWire returns the value in Nomad's plugin protocol.
func (v Value) ToWire() *structspb.Attribute {
	out := &structspb.Attribute{Unit: v.unit}
	switch v.kind {
	case KindInt:
		out.Value = &structspb.Attribute_IntVal{IntVal: v.num}
	case KindFloat:
		out.Value = &structspb.Attribute_FloatVal{FloatVal: v.flt}
	case KindString:
		out.Value = &structspb.Attribute_StringVal{StringVal: v.str}
	case KindBool:
		out.Value = &structspb.Attribute_BoolVal{BoolVal: v.num == 1}
	}
	return out
}

// FromWire is the inverse of ToWire.
func FromWire(w *structspb.Attribute) Value {
	var v Value
	switch x := w.GetValue().(type) {
	case *structspb.Attribute_IntVal:
		v = Int(x.IntVal)
	case *structspb.Attribute_FloatVal:
		v = Float(x.FloatVal)
	case *structspb.Attribute_StringVal:
		v = String(x.StringVal)
	case *structspb.Attribute_BoolVal:
		v = Bool(x.BoolVal)
	}
	v.unit = w.GetUnit()
	return v
}

// MapToWire returns named values in Nomad's plugin protocol.
func MapToWire(m map[string]Value) map[string]*structspb.Attribute {
	out := make(map[string]*structspb.Attribute, len(m))
	for k, v := range m {
		out[k] = v.ToWire()
	}
	return out
}

// MapFromWire is the inverse of MapToWire; an empty map becomes nil.
func MapFromWire(m map[string]*structspb.Attribute) map[string]Value {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]Value, len(m))
	for k, w := range m {
		out[k] = FromWire(w)
	}
	return out
}

// ToWire returns the statistic in Nomad's plugin protocol.
func (s Stat) ToWire() *structspb.StatValue {
	out := &structspb.StatValue{Unit: s.Unit, Desc: s.Description}
	if s.Int != nil {
		out.IntNumeratorVal = wrapperspb.Int64(*s.Int)
	}
	if s.IntOf != nil {
		out.IntDenominatorVal = wrapperspb.Int64(*s.IntOf)
	}
	if s.Float != nil {
		out.FloatNumeratorVal = wrapperspb.Double(*s.Float)
	}
	if s.FloatOf != nil {
		out.FloatDenominatorVal = wrapperspb.Double(*s.FloatOf)
	}
	if s.Text != nil {
		out.StringVal = wrapperspb.String(*s.Text)
	}
	if s.Bool != nil {
		out.BoolVal = wrapperspb.Bool(*s.Bool)
	}
	return out
}

// StatFromWire is the inverse of Stat.ToWire.
func StatFromWire(w *structspb.StatValue) Stat {
	s := Stat{Unit: w.GetUnit(), Description: w.GetDesc()}
	if x := w.GetIntNumeratorVal(); x != nil {
		s.Int = &x.Value
	}
	if x := w.GetIntDenominatorVal(); x != nil {
		s.IntOf = &x.Value
	}
	if x := w.GetFloatNumeratorVal(); x != nil {
		s.Float = &x.Value
	}
	if x := w.GetFloatDenominatorVal(); x != nil {
		s.FloatOf = &x.Value
	}
	if x := w.GetStringVal(); x != nil {
		s.Text = &x.Value
	}
	if x := w.GetBoolVal(); x != nil {
		s.Bool = &x.Value
	}
	return s
}
