package model

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the published schema anew")

const schemaPath = "../../../docs/snapshot.schema.json"

// enums are the values of the types and properties that have few.
var enums = map[string][]string{
	"State":              {string(StateQueued), string(StateAdmitted), string(StateRunning), string(StateStopping)},
	"Gang":               {"", string(GangJob), string(GangGroup), string(GangNone)},
	"Job.collective":     {"", CollectiveRing, CollectiveAllToAll},
	"Job.preempt":        {"", PreemptCheckpoint, PreemptAlways, PreemptNever},
	"Job.move":           {"", MoveNever},
	"DeviceAsk.shared":   {"", SharedAllow, SharedOnly},
	"DivisionState":      {string(DivisionPending), string(DivisionDone), string(DivisionRefused)},
	"Topology.mode":      {"", TopologyRequire, TopologyPrefer},
	"Constraint.operand": Operands,
	"Speed.unit":         {"", UnitSamples, UnitSteps},
	"SpeedSample.level":  append([]string{""}, SpeedLevels...),
	"Queue.reclaim":      {"", ReclaimSiblings, ReclaimNone},
}

// signed are the integers that may be below 0: all others may not.
var signed = []string{"GPU.numa", "Job.priority"}

// TestSchema keeps docs/snapshot.schema.json equal to the Go types and their
// comments; -update writes it.
func TestSchema(t *testing.T) {
	b := schemaBuilder{docs: fieldDocs(t), defs: map[string]any{}}
	root := b.object(reflect.TypeFor[Snapshot]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Caravan snapshot"
	root["$defs"] = b.defs
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(root); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(schemaPath, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	published, err := os.ReadFile(schemaPath)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(published), out.String()); diff != "" {
		t.Errorf("%s is not what the types say; run this test with -update (-published +types):\n%s", schemaPath, diff)
	}
}

type schemaBuilder struct {
	docs map[string]string
	defs map[string]any
}

func (b *schemaBuilder) object(typ reflect.Type) map[string]any {
	properties := map[string]any{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		p := b.value(f.Type, typ.Name()+"."+name)
		if doc := b.docs[typ.Name()+"."+f.Name]; doc != "" {
			p["description"] = doc
		}
		properties[name] = p
	}
	o := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if list := required[typ.Name()]; list != nil {
		o["required"] = list
	}
	if doc := b.docs[typ.Name()]; doc != "" {
		o["description"] = doc
	}
	return o
}

func (b *schemaBuilder) value(typ reflect.Type, path string) map[string]any {
	if values := enums[path]; values != nil {
		return map[string]any{"enum": values}
	}
	if values := enums[typ.Name()]; values != nil {
		return map[string]any{"enum": values}
	}
	switch typ {
	case reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return b.value(typ.Elem(), path)
	case reflect.Struct:
		if b.defs[typ.Name()] == nil {
			b.defs[typ.Name()] = true // against recursion
			b.defs[typ.Name()] = b.object(typ)
		}
		return map[string]any{"$ref": "#/$defs/" + typ.Name()}
	case reflect.Slice:
		return map[string]any{"type": []string{"array", "null"}, "items": b.value(typ.Elem(), path)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": b.value(typ.Elem(), path)}
	case reflect.Int, reflect.Int64:
		v := map[string]any{"type": "integer"}
		if !slices.Contains(signed, path) {
			v["minimum"] = 0
		}
		return v
	case reflect.Float64:
		return map[string]any{"type": "number", "minimum": 0}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	default:
		return map[string]any{"type": "string"}
	}
}

// fieldDocs reads the comments on types and fields from the source.
func fieldDocs(t *testing.T) map[string]string {
	docs := map[string]string{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok {
				return true
			}
			for _, spec := range decl.Specs {
				typ, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				docs[typ.Name.Name] = sentence(decl.Doc)
				if st, ok := typ.Type.(*ast.StructType); ok {
					for _, field := range st.Fields.List {
						for _, id := range field.Names {
							docs[typ.Name.Name+"."+id.Name] = sentence(field.Doc)
						}
					}
				}
			}
			return true
		})
	}
	return docs
}

func sentence(doc *ast.CommentGroup) string {
	return strings.Join(strings.Fields(doc.Text()), " ")
}

// Every name in the tables above must be a type or property.
func TestSchemaTablesAreCurrent(t *testing.T) {
	data, err := os.ReadFile(schemaPath)
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Defs map[string]struct{ Properties map[string]any } `json:"$defs"`
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	paths := slices.Concat(signed, slices.Collect(maps.Keys(enums)))
	for typ, names := range required {
		for _, name := range names {
			paths = append(paths, typ+"."+name)
		}
	}
	for _, path := range paths {
		typ, name, dotted := strings.Cut(path, ".")
		if !dotted || typ == "Snapshot" {
			continue
		}
		if _, ok := schema.Defs[typ].Properties[name]; !ok {
			t.Errorf("%s: no such property", path)
		}
	}
}
