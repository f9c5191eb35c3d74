package wire_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/basepb"
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/devicepb"
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/driverpb"
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/hclspecpb"
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/structspb"
)

// TestWireFacts compares every name, number and type with testdata/facts.txt,
// which lists those of Nomad 2.0. A difference would not fail to compile; it
// would lose data between Nomad and a plugin.
func TestWireFacts(t *testing.T) {
	var got []string
	for _, f := range []protoreflect.FileDescriptor{
		basepb.File_internal_nomadplugin_wire_basepb_base_proto,
		devicepb.File_internal_nomadplugin_wire_devicepb_device_proto,
		driverpb.File_internal_nomadplugin_wire_driverpb_driver_proto,
		hclspecpb.File_internal_nomadplugin_wire_hclspecpb_hclspec_proto,
		structspb.File_internal_nomadplugin_wire_structspb_structs_proto,
	} {
		got = append(got, facts(f)...)
	}
	slices.Sort(got)
	want, err := os.ReadFile("testdata/facts.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), strings.Join(got, "\n")+"\n"); diff != "" {
		t.Errorf("wire contract differs (-want +got):\n%s", diff)
	}
}

func facts(f protoreflect.FileDescriptor) []string {
	var out []string
	for i := range f.Services().Len() {
		methods := f.Services().Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			out = append(out, fmt.Sprintf("rpc %s %s%s %s%s", m.FullName(),
				mark(m.IsStreamingClient()), m.Input().FullName(), mark(m.IsStreamingServer()), m.Output().FullName()))
		}
	}
	out = append(out, enumFacts(f.Enums())...)
	return append(out, messageFacts(f.Messages())...)
}

func mark(streaming bool) string {
	if streaming {
		return "stream "
	}
	return ""
}

func messageFacts(messages protoreflect.MessageDescriptors) []string {
	var out []string
	for i := range messages.Len() {
		m := messages.Get(i)
		if m.IsMapEntry() {
			continue
		}
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			var typ string
			switch {
			case f.IsMap():
				typ = "map " + name(f.MapKey()) + " " + name(f.MapValue())
			case f.IsList():
				typ = "repeated " + name(f)
			default:
				typ = name(f)
			}
			if o := f.ContainingOneof(); o != nil {
				typ += " oneof " + string(o.Name())
			}
			out = append(out, fmt.Sprintf("field %s %d %s", f.FullName(), f.Number(), typ))
		}
		out = append(out, enumFacts(m.Enums())...)
		out = append(out, messageFacts(m.Messages())...)
	}
	return out
}

func name(f protoreflect.FieldDescriptor) string {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return string(f.Message().FullName())
	case protoreflect.EnumKind:
		return string(f.Enum().FullName())
	default:
		return f.Kind().String()
	}
}

func enumFacts(enums protoreflect.EnumDescriptors) []string {
	var out []string
	for i := range enums.Len() {
		values := enums.Get(i).Values()
		for j := range values.Len() {
			out = append(out, fmt.Sprintf("enum %s.%s %d", enums.Get(i).FullName(), values.Get(j).Name(), values.Get(j).Number()))
		}
	}
	return out
}
