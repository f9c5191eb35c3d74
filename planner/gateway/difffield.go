package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// diffStruct compares two structs of one type field by field. An invalid value
// stands for one that is not there.
func diffStruct(old, new reflect.Value, skip map[string]bool) ([]*api.FieldDiff, []*api.ObjectDiff) {
	shape := old
	if !shape.IsValid() {
		shape = new
	}
	var d diffs
	if !shape.IsValid() {
		return nil, nil
	}
	for i := range shape.NumField() {
		f := shape.Type().Field(i)
		if !f.IsExported() || skip[f.Name] {
			continue
		}
		d.compare(f.Name, fieldOf(old, i), fieldOf(new, i))
	}
	return d.fields, d.objects
}

func fieldOf(v reflect.Value, i int) reflect.Value {
	if !v.IsValid() {
		return v
	}
	return inside(v.Field(i))
}

// inside follows pointers and interfaces; nil becomes the invalid value.
func inside(v reflect.Value) reflect.Value {
	for v.IsValid() && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) {
		v = v.Elem()
	}
	return v
}

// diffs collects what differs within one struct.
type diffs struct {
	fields  []*api.FieldDiff
	objects []*api.ObjectDiff
}

func (d *diffs) compare(name string, old, new reflect.Value) {
	shape := old
	if !shape.IsValid() {
		shape = new
	}
	if !shape.IsValid() {
		return
	}
	switch shape.Kind() {
	case reflect.Struct:
		fields, objects := diffStruct(old, new, nil)
		d.object(name, old.IsValid(), new.IsValid(), fields, objects)
	case reflect.Map:
		d.compareMaps(name, old, new, shape.Type().Elem())
	case reflect.Slice:
		d.compareSlices(name, old, new, shape.Type().Elem())
	default:
		d.field(name, text(old), text(new))
	}
}

// compareMaps shows a map of plain values as fields name[key], one of anything
// (a driver's config) as an object, and one of structs as an object per key.
func (d *diffs) compareMaps(name string, old, new reflect.Value, elem reflect.Type) {
	switch {
	case elem.Kind() == reflect.Interface:
		var inner diffs
		inner.flat("", old, new)
		d.object(name, old.IsValid() && old.Len() > 0, new.IsValid() && new.Len() > 0, inner.fields, nil)
	case elem.Kind() == reflect.Pointer && elem.Elem().Kind() == reflect.Struct:
		for _, k := range keysOf(old, new) {
			o, n := indexMap(old, k), indexMap(new, k)
			fields, objects := diffStruct(o, n, nil)
			d.object(singular(name), o.IsValid(), n.IsValid(), fields, objects)
		}
	default:
		for _, k := range keysOf(old, new) {
			d.flat(name+"["+k+"]", indexMap(old, k), indexMap(new, k))
		}
	}
}

// compareSlices pairs structs by their name where they have one and as equal
// ones where not, and shows lists of plain values as an object.
func (d *diffs) compareSlices(name string, old, new reflect.Value, elem reflect.Type) {
	structs := elem.Kind() == reflect.Struct || (elem.Kind() == reflect.Pointer && elem.Elem().Kind() == reflect.Struct)
	if elem.Kind() == reflect.Uint8 {
		d.field(name, text(old), text(new))
		return
	}
	var inner diffs
	for _, p := range pairByName(elements(old), elements(new), identity) {
		switch {
		case structs:
			fields, objects := diffStruct(p.old, p.new, nil)
			d.object(singular(name), p.old.IsValid(), p.new.IsValid(), fields, objects)
		default:
			inner.flat(name, p.old, p.new)
		}
	}
	if len(inner.fields) > 0 {
		d.object(name, old.IsValid() && old.Len() > 0, new.IsValid() && new.Len() > 0, inner.fields, nil)
	}
}

// identity is what pairs a slice's elements: their name, else all of them.
func identity(v reflect.Value) string {
	if v.Kind() == reflect.Struct {
		for _, key := range []string{"Name", "Label"} {
			if f := v.FieldByName(key); f.IsValid() {
				if s := text(inside(f)); s != "" {
					return s
				}
			}
		}
	}
	return text(v)
}

// flat compares two values of any depth, each leaf as a field with its path.
func (d *diffs) flat(path string, old, new reflect.Value) {
	shape := old
	if !shape.IsValid() {
		shape = new
	}
	if !shape.IsValid() {
		return
	}
	switch shape.Kind() {
	case reflect.Map:
		for _, k := range keysOf(old, new) {
			at := k
			if path != "" {
				at = path + "." + k
			}
			d.flat(at, indexMap(old, k), indexMap(new, k))
		}
	case reflect.Slice:
		o, n := elements(old), elements(new)
		for i := range max(len(o), len(n)) {
			d.flat(fmt.Sprintf("%s[%d]", path, i), at(o, i), at(n, i))
		}
	default:
		d.field(path, text(old), text(new))
	}
}

func (d *diffs) field(name, old, new string) {
	if old == new {
		return
	}
	d.fields = append(d.fields, &api.FieldDiff{Type: diffType(old != "", new != "", true), Name: name, Old: old, New: new})
}

func (d *diffs) object(name string, old, new bool, fields []*api.FieldDiff, objects []*api.ObjectDiff) {
	kind := diffType(old, new, len(fields)+len(objects) > 0)
	if kind == diffNone {
		return
	}
	d.objects = append(d.objects, &api.ObjectDiff{Type: kind, Name: name, Fields: fields, Objects: objects})
}

// text is a plain value as Nomad prints it in a diff, a duration in
// nanoseconds; anything else is JSON.
func text(v reflect.Value) string {
	switch {
	case !v.IsValid():
		return ""
	case v.Kind() == reflect.String:
		return v.String()
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10)
	}
	data, err := json.Marshal(v.Interface())
	if err != nil {
		return fmt.Sprint(v.Interface())
	}
	return string(data)
}

func elements(v reflect.Value) []reflect.Value {
	if !v.IsValid() || v.Kind() != reflect.Slice {
		return nil
	}
	out := make([]reflect.Value, v.Len())
	for i := range out {
		out[i] = inside(v.Index(i))
	}
	return out
}

func at(list []reflect.Value, i int) reflect.Value {
	if i >= len(list) {
		return reflect.Value{}
	}
	return list[i]
}

func indexMap(v reflect.Value, key string) reflect.Value {
	if !v.IsValid() || v.Kind() != reflect.Map {
		return reflect.Value{}
	}
	return inside(v.MapIndex(reflect.ValueOf(key).Convert(v.Type().Key())))
}

func keysOf(maps ...reflect.Value) []string {
	var out []string
	for _, m := range maps {
		if !m.IsValid() || m.Kind() != reflect.Map {
			continue
		}
		for _, k := range m.MapKeys() {
			out = append(out, k.String())
		}
	}
	slices.SortFunc(out, cmp.Compare[string])
	return slices.Compact(out)
}

// singular is the name of one element of a list: "Affinities" holds objects
// named "Affinity".
func singular(name string) string {
	if stem, ok := strings.CutSuffix(name, "ies"); ok {
		return stem + "y"
	}
	return strings.TrimSuffix(name, "s")
}
