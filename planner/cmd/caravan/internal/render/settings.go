package render

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// Policy writes the policy in force, a line for each key that is not at its
// zero value, and whether jobs give way and gangs change their sizes at all.
func Policy(w io.Writer, s Style, set httpapi.Settings) error {
	b, err := json.Marshal(set.Policy.Policy)
	if err != nil {
		return fmt.Errorf("write policy: %w", err)
	}
	var tree map[string]any
	if err := json.Unmarshal(b, &tree); err != nil {
		return fmt.Errorf("write policy: %w", err)
	}
	switches(tree, set.Policy.Policy)
	g := newGrid()
	addTree(g, "", tree)
	g.add("half_life", set.Policy.HalfLife.String())
	g.add("From", source(s, set.Policy.Set, "policy"))
	if set.Fault != "" {
		g.add(s.paint(red, "Fault"), set.Fault)
	}
	return g.write(w, "")
}

// switches are told by the names that they are set by, when they are off too.
func switches(tree map[string]any, p queue.Policy) {
	for block, keys := range map[string]map[string]bool{
		"preempt": {"enabled": p.Preempt.Enabled, "unsaved": !p.Preempt.SavedOnly},
		"elastic": {"enabled": !p.Elastic.Disabled},
	} {
		inside, _ := tree[block].(map[string]any)
		if inside == nil {
			inside = map[string]any{}
			tree[block] = inside
		}
		delete(inside, "saved_only")
		delete(inside, "disabled")
		for key, on := range keys {
			inside[key] = on
		}
	}
}

// addTree adds an object's keys, with those of the objects in it.
func addTree(g *grid, prefix string, tree map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		name := prefix + key
		switch v := tree[key].(type) {
		case map[string]any:
			addTree(g, name+".", v)
		case float64:
			if short, isTime := strings.CutSuffix(name, "_ns"); isTime {
				g.add(short, time.Duration(v).String())
				continue
			}
			g.add(name, fmt.Sprint(v))
		case []any:
			g.add(name, listed(name, v))
		default:
			g.add(name, fmt.Sprint(v))
		}
	}
}

// listed are a list's values; of GPU-seconds the GPU-hours too, as they are set.
func listed(name string, values []any) string {
	text := fmt.Sprint(values)
	if !strings.HasSuffix(name, "_gpu_s") {
		return text
	}
	hours := make([]string, len(values))
	for i, v := range values {
		seconds, _ := v.(float64)
		hours[i] = strconv.FormatFloat(seconds/3600, 'g', 6, 64)
	}
	return text + " (" + strings.Join(hours, ", ") + " GPU-hours)"
}

// Warnings writes what was set and does nothing, a line each.
func Warnings(w io.Writer, s Style, warnings []httpapi.Warning) error {
	g := newGrid()
	for _, warning := range warnings {
		g.add(s.paint(yellow, "Warning"), warning.Subject+": "+warning.Text)
	}
	return g.write(w, "")
}

// source says where a setting is from.
func source(s Style, set *httpapi.SettingText, name string) string {
	if set == nil {
		return "the planner's file"
	}
	return fmt.Sprintf("set %s ago; caravan %s reset goes back to the planner's file", s.age(set.At), name)
}

// QueuesSet writes which queues count now.
func QueuesSet(w io.Writer, s Style, set httpapi.QueuesSetting) error {
	names := make([]string, len(set.Queues))
	for i := range set.Queues {
		names[i] = set.Queues[i].Path
	}
	g := newGrid()
	g.add("Queues", count(len(names), "queue")+label(": ", strings.Join(names, ", ")))
	g.add("From", source(s, set.Set, "queues"))
	return g.write(w, "")
}
