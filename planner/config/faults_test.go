package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// more is what full has not.
const more = `
queue "org" {
  guarantee {
    gpus   = 8
    models = { "H100" = 4, "A100" = 4 }
  }
  weight       = 2
  priorities   = { high = 90 }
  reclaim_from = ["b.c"]
  min_run      = "10m"
}
queue "org/x" {
  guarantee {
    gpus = 7
  }
}
queue "b.c" {
  default = true
}
reservation "driver" {
  kind  = "maintenance"
  nodes = ["gpu-*"]
  from  = "2026-12-01T22:00:00Z"
  until = "2026-12-02T02:00:00Z"
  lead  = "1h"
  evict = true
}
reservation "notebooks" {
  kind  = "capacity"
  queue = "b.c"
  gpus  = 16
  level = "rack"
}
region "eu" {
  price  = { "H100" = 3.5 }
  carbon = 100
  data   = ["imagenet"]
}
`

// keysOf are the keys of a text that stand in a line of their own, by line.
func keysOf(src string) map[int]string {
	var way []string
	out := map[int]string{}
	open := regexp.MustCompile(`^\s*([a-z_]+)(?: "([^"]*)")? \{$`)
	key := regexp.MustCompile(`^\s*([a-z_]+)\s*= `)
	for i, line := range strings.Split(src, "\n") {
		if m := open.FindStringSubmatch(line); m != nil {
			name := m[1]
			if m[2] != "" {
				name += "[" + m[2] + "]"
			}
			way = append(way, name)
		} else if strings.TrimSpace(line) == "}" {
			way = way[:len(way)-1]
		} else if m := key.FindStringSubmatch(line); m != nil {
			out[i+1] = strings.Join(append(slices.Clone(way), m[1]), ".")
		}
	}
	return out
}

// Whichever keys have a value of the wrong type, each is told once, in the file's
// order, with its line, key and value, and nothing else is: neither what follows from
// the value that counts instead, nor less because there are many.
func TestWrongTypesAreToldAndNothingElse(t *testing.T) {
	src := full + more
	keys := keysOf(src)
	if len(keys) < 90 {
		t.Fatalf("%d keys are found", len(keys))
	}
	read := func(string) ([]byte, error) { return []byte(`rack "r1" { nodes = ["n1"] }`), nil }
	if _, err := parse([]byte(src), "c.hcl", noEnv, read); err != nil {
		t.Fatalf("the text itself: %v", err)
	}
	all := []int{}
	for line := range keys {
		all = append(all, line)
	}
	slices.Sort(all)
	check := func(t rapid.TB, broken []int) {
		lines := strings.Split(src, "\n")
		var want []string
		for _, line := range broken {
			before, _, _ := strings.Cut(lines[line-1], "=")
			lines[line-1] = before + "= [[7]]"
			want = append(want, fmt.Sprintf("c.hcl:%d: %s", line, keys[line]))
		}
		_, err := parse([]byte(strings.Join(lines, "\n")), "c.hcl", noEnv, read)
		if err == nil {
			t.Fatal("no fault is told")
		}
		var got []string
		for text := range strings.SplitSeq(err.Error(), "\n") {
			at, after, _ := strings.Cut(text, " is [")
			at = strings.TrimSuffix(at, "[0]") // the list's first part
			if !strings.Contains(after, "7]") || !strings.Contains(after, ": want ") {
				t.Errorf("%q lacks the value or what is wanted", text)
			}
			got = append(got, at)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("faults (-want +got):\n%s\n%v", diff, err)
		}
	}
	for _, line := range all {
		check(t, []int{line})
	}
	check(t, all)
	rapid.Check(t, func(t *rapid.T) {
		broken := rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 12, rapid.ID[int]).Draw(t, "lines")
		slices.Sort(broken)
		check(t, broken)
	})
}

func TestFaultTexts(t *testing.T) {
	for name, test := range map[string]struct {
		src  string
		want []string
	}{
		"a text for a number": {"policy {\n  max_holds = \"many\"\n}\n", []string{`c.hcl:2: policy.max_holds is "many": want a whole number`}},
		"parts of lists and maps": {"queue \"a.b\" {\n  guarantee {\n    models = {\n      H100 = \"x\"\n      A100 = 1.5\n    }\n  }\n  reclaim_from = [\n    \"a.b\",\n    {},\n  ]\n}\n", []string{
			`c.hcl:4: queue[a.b].guarantee.models["H100"] is "x": want a whole number`, `c.hcl:5: queue[a.b].guarantee.models["A100"] is 1.5: want a whole number`, `c.hcl:10: queue[a.b].reclaim_from[1] is {}: want a text in quotes, like "a"`}},
		"words without quotes":          {"log_level = debug\n", []string{`c.hcl:1: log_level is debug: want a text in quotes, like "a"`}},
		"a block for a key":             {"policy {\n  order {}\n}\n", []string{`c.hcl:2: policy.order is a block: write order = …, want a text in quotes, like "a"`}},
		"a key for a block":             {"policy = { order = \"fifo\" }\n", []string{"c.hcl:1: policy is { order = \"fifo\" }: it is a block: write policy { … } without the equals sign"}},
		"a block twice":                 {"policy {\n  order = \"fifo\"\n}\npolicy { order = 3 }\n", []string{"c.hcl:4: policy is there twice, first in line 1: keep one"}},
		"a name too many":               {"policy \"x\" {}\n", []string{`c.hcl:1: policy has the name "x": want none: write policy { … }`}},
		"a name too few":                {"queue {\n  weight = 0.5\n}\n", []string{`c.hcl:1: queue has 0 names: want one: write queue "NAME" { … }`}},
		"a misspelt key is not missing": {"burst {\n  pool = \"p.hcl\"\n}\n", []string{`c.hcl:2: burst.pool is not known here: did you mean "pools"? allowed are`}},
		"a number for a duration":       {"policy {\n  preempt {\n    restart_time = 5\n  }\n}\n", []string{`c.hcl:3: policy.preempt.restart_time is "5": want a duration like`}},
		"a secret is not shown":         {"nomad {\n  token = [\"geheim\"]\n}\n", []string{`c.hcl:2: nomad.token is no text in quotes: want a text`}},
		"the second of one name":        {"queue \"a\" {\n  weight = 1\n}\nqueue \"a\" {\n  min_run = \"x\"\n}\n", []string{`c.hcl:4: queue "a": path: "a": another queue before it has this path`, `c.hcl:5: queue[a].min_run is "x": want a duration`}},
		"a storage's limit":             {"policy {\n  preempt {\n    storage \"x.y\" {\n      max_at_once = -1\n    }\n  }\n}\n", []string{`c.hcl:4: policy.preempt.storage[x.y].max_at_once is -1: want 0 to 100000; 0 is as policy.preempt says`}},
		"levels that nobody can read":   {"levels = 7\nlevel \"x\" {}\ntopology_file = \"t.hcl\"\npolicy {\n  spares {\n    per = \"row\"\n  }\n}\n", []string{`c.hcl:1: levels is 7: want a list of texts`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte(test.src), "c.hcl", noEnv, noRead)
			if err == nil {
				t.Fatal("no fault")
			}
			got := strings.Split(err.Error(), "\n")
			if len(got) != len(test.want) {
				t.Fatalf("%d faults, want %d:\n%v", len(got), len(test.want), err)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], test.want[i]) {
					t.Errorf("fault is  %s\nwant it to begin %s", got[i], test.want[i])
				}
			}
		})
	}
}

// The faults of a file and of those that it names stay together, the file's first,
// and what stands in none comes last.
func TestFaultsOfSeveralFiles(t *testing.T) {
	src := "queues_file = \"q.hcl\"\ntopology_file = \"t.hcl\"\nobserve_only = 3\n"
	read := func(path string) ([]byte, error) {
		return []byte(map[string]string{"q.hcl": "queue \"a\" {\n  weight = \"x\"\n  default = 7\n}\n", "t.hcl": "rack \"a\" {\n  nodes = 1\n}\nrak \"b\" {}\n"}[path]), nil
	}
	_, err := parse([]byte(src), "c.hcl", envOf(map[string]string{"CARAVAN_LOG_LEVEL": "loud"}), read)
	want := []string{
		"c.hcl:3: observe_only is 3: want true or false",
		"t.hcl:2: nodes is 1: want a list of texts in quotes, like [\"a\", \"b\"]",
		"t.hcl:4: no level is named \"rak\": did you mean \"rack\"? allowed are region, zone, block, rack, domain",
		`q.hcl:2: queue[a].weight is "x": want a number`,
		"q.hcl:3: queue[a].default is 7: want true or false",
		`environment variable CARAVAN_LOG_LEVEL: log_level is "loud": allowed are trace, debug, info, warn, error`,
	}
	if diff := cmp.Diff(want, strings.Split(fmt.Sprint(err), "\n")); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// inOrder fails where an error is not a list of faults by line of one file.
func inOrder(t *testing.T, err error, name string) {
	last := 0
	for text := range strings.SplitSeq(err.Error(), "\n") {
		rest, found := strings.CutPrefix(text, name+":")
		number, _, _ := strings.Cut(rest, ":")
		line, numberErr := strconv.Atoi(number)
		if !found || numberErr == nil && line < last {
			t.Errorf("%q is out of order, or without its place:\n%v", text, err)
		}
		last = max(last, line)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(full + more)
	f.Add("level \"a.b\" {}")
	f.Add("admission { retry { initial = \"1s\" } }")
	f.Add("queue {}\nqueue \"a\" \"b\" { weight = null }\nlevels = [null]")
	f.Fuzz(func(t *testing.T, src string) {
		c, err := parse([]byte(src), "c.hcl", noEnv, noRead)
		if err == nil && (len(c.Levels) == 0 || len(c.Managed.Devices) == 0) {
			t.Errorf("an incomplete configuration was accepted: %+v", c)
		}
		if err != nil {
			inOrder(t, err, "c.hcl")
			if !cmp.Equal(c, Config{}) {
				t.Error("part of a configuration with faults counts")
			}
		}
	})
}

// Whatever is set while a planner runs, it is taken whole or not at all.
func FuzzSet(f *testing.F) {
	f.Add("order = \"fifo\"\nmax_holds = {}")
	f.Add("policy { preempt { storage \"a\" { max_at_once = \"x\" } } }")
	f.Add(more)
	f.Add("queue \"a\" {\n  priorities = { \"${x}\" = 1, a = 2, a = 3 }\n}")
	f.Add("reservation \"r\" {\n  kind = \"start\"\n  from = 5\n}")
	f.Fuzz(func(t *testing.T, src string) {
		policy, err := ParsePolicy([]byte(src), "set", Default().Levels)
		if err != nil {
			inOrder(t, err, "set")
			if !cmp.Equal(policy, Policy{}) {
				t.Error("part of a policy with faults counts")
			}
		}
		queues, err := ParseQueues([]byte(src), "set")
		if err != nil {
			inOrder(t, err, "set")
		} else if faults := model.CheckQueues(queues); len(faults) > 0 {
			t.Errorf("queues with faults are taken: %v", faults)
		}
		if err != nil && queues != nil {
			t.Error("some queues of a file with faults count")
		}
		reservations, err := ParseReservations([]byte(src), "set", Default().Levels, nil)
		if err != nil {
			inOrder(t, err, "set")
		}
		if err != nil && reservations != nil {
			t.Error("some reservations of a file with faults count")
		}
	})
}
