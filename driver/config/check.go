package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/agext/levenshtein"

	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// CheckTask finds what can be known to be wrong with a task's config block
// before there is a node for it; block is as Nomad's API has it. Values with
// references (${…}) are not judged, since what they become is known on the node
// only, and neither is what the operator of a node allows.
func CheckTask(block map[string]any) []Fault {
	c := checker{}
	sound := c.block("", TaskOptions, block)
	raw := unset()
	data, err := hclspec.EncodeMap(TaskSchema(), sound, nil)
	if err == nil {
		err = base.Unmarshal(data, &raw)
	}
	if err != nil {
		// Each option could be read by itself.
		c.faults.add("config", text(block), err.Error())
		return c.faults
	}
	_, f := raw.read("/", Plugin{Runtimes: Runtimes, RuntimeArgs: true})
	return append(c.faults, f...).sorted()
}

// checker reads options one by one, so that it finds every fault and not the
// first.
type checker struct{ faults faults }

// block returns what of a block can be read and judged.
func (c *checker) block(prefix string, options []Option, block map[string]any) map[string]any {
	sound := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(block)) {
		at := slices.IndexFunc(options, func(o Option) bool { return o.Key == key })
		if at < 0 {
			c.faults.add(prefix+key, text(block[key]), unknown(key, options))
			continue
		}
		o, value := options[at], block[key]
		switch {
		case value == nil:
		case o.Free != "" || o.Block != nil:
			if inner, ok := c.single(prefix, o, value); ok {
				sound[key] = inner
			}
		default:
			if value, judged := judgeable(o, value); judged && c.fits(prefix, o, value) {
				sound[key] = value
			}
		}
	}
	return sound
}

// single is the one block that there may be of an option.
func (c *checker) single(prefix string, o Option, value any) (map[string]any, bool) {
	var all []map[string]any
	switch v := value.(type) {
	case map[string]any:
		all = append(all, v)
	case []map[string]any:
		all = v
	case []any:
		for _, x := range v {
			if m, ok := x.(map[string]any); ok {
				all = append(all, m)
			}
		}
		if len(all) != len(v) {
			all = nil
		}
	}
	if len(all) != 1 {
		c.faults.add(prefix+o.Key, text(value), "one block, as "+o.Key+" { … }")
		return nil, false
	}
	if o.Free == "" {
		return c.block(prefix+o.Key+".", o.Block, all[0]), true
	}
	sound := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(all[0])) {
		inner := Option{Key: name, Type: o.Free}
		if v := all[0][name]; !refers(v) && c.fits(prefix+o.Key+".", inner, v) {
			sound[name] = v
		}
	}
	return sound, true
}

// fits says whether a value is of its option's type, as Nomad will find.
func (c *checker) fits(prefix string, o Option, value any) bool {
	data, err := hclspec.EncodeMap(Schema([]Option{o}), map[string]any{o.Key: value}, nil)
	if err == nil && o.Type == "number" {
		// A number of processes is a whole one.
		into := map[string]float64{}
		if err = base.Unmarshal(data, &into); err == nil && into[o.Key] != math.Trunc(into[o.Key]) {
			err = fmt.Errorf("%v is no whole number", into[o.Key])
		}
	}
	if err != nil {
		c.faults.add(prefix+o.Key, text(value), kinds[o.Type])
	}
	return err == nil
}

// kinds are the types of options in words.
var kinds = map[string]string{"string": "a string", "number": "a whole number", "bool": "true or false", "list(string)": "a list of strings"}

// free are options whose texts are not judged: only whether they are there.
var free = []string{"command", "args", "work_dir", "image", "entrypoint", "runtime_args", "shm_size", "port_label"}

// judgeable is a value without references, or, where only its being there
// matters, with references that stand for themselves.
func judgeable(o Option, value any) (any, bool) {
	if !refers(value) {
		return value, true
	}
	if !slices.Contains(free, o.Key) {
		return nil, false
	}
	literal := strings.NewReplacer("${", "$${", "%{", "%%{")
	switch v := value.(type) {
	case string:
		return literal.Replace(v), true
	case []string:
		out := make([]string, len(v))
		for i, s := range v {
			out[i] = literal.Replace(s)
		}
		return out, true
	case []any:
		out := slices.Clone(v)
		for i, x := range v {
			if s, ok := x.(string); ok {
				out[i] = literal.Replace(s)
			}
		}
		return out, true
	}
	return nil, false
}

// refers says whether a value has a reference anywhere.
func refers(value any) bool {
	return strings.Contains(text(value), "${") || strings.Contains(text(value), "%{")
}

// text is a value as a person would write it.
func text(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(raw)
}

// unknown says which options there are, and which one was likely meant.
func unknown(key string, options []Option) string {
	names, best, distance := make([]string, len(options)), "", 3
	for i, o := range options {
		names[i] = o.Key
		if d := levenshtein.Distance(key, o.Key, nil); d < distance {
			best, distance = o.Key, d
		}
	}
	slices.Sort(names)
	if best != "" {
		return fmt.Sprintf("nothing: there is no such option; did you mean %q?", best)
	}
	return "nothing: there is no such option; there are " + strings.Join(names, ", ")
}
