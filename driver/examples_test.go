package driver

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/caravan-sched/caravan/devicegpu"
	"github.com/caravan-sched/caravan/driver/config"
	"github.com/caravan-sched/caravan/internal/jobhcl"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// fences are a document's HCL examples.
func fences(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile("(?sm)^ *```hcl[ \\w]*\n(.*?)^ *```").FindAllStringSubmatch(string(data), -1) {
		out = append(out, m[1])
	}
	return out
}

// pluginConfigs are the config blocks of an agent's plugin blocks, by plugin.
func pluginConfigs(t *testing.T, name, text string) map[string]string {
	t.Helper()
	file, diags := hclsyntax.ParseConfig([]byte(text), name, hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatalf("%s: %v\n%s", name, diags, text)
	}
	out := map[string]string{}
	for _, b := range file.Body.(*hclsyntax.Body).Blocks {
		if b.Type != "plugin" {
			continue
		}
		for _, inner := range b.Body.Blocks {
			if inner.Type != "config" {
				t.Errorf("%s: plugin %q has a block %q", name, b.Labels, inner.Type)
				continue
			}
			out[b.Labels[0]] = text[inner.OpenBraceRange.End.Byte:inner.CloseBraceRange.Start.Byte]
		}
	}
	return out
}

// configure gives a plugin its configuration as an agent does.
func configure(t *testing.T, p base.Plugin, text string) error {
	t.Helper()
	raw, err := hclspec.Encode(p.ConfigSchema(), []byte(text), "config")
	if err != nil {
		return err
	}
	return p.SetConfig(t.Context(), base.Config{Raw: raw})
}

// TestAgentExamples: the plugins take what the documents and the shipped
// configuration say to write for them.
func TestAgentExamples(t *testing.T) {
	shipped, err := os.ReadFile("../dist/nomad/client.hcl")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{"dist/nomad/client.hcl": string(shipped)}
	for _, doc := range []string{"driver.md", "operators.md", "device-plugin.md"} {
		for i, text := range fences(t, filepath.Join("../docs", doc)) {
			texts[fmt.Sprintf("%s, example %d", doc, i)] = text
		}
	}
	found := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		for plugin, text := range pluginConfigs(t, name, texts[name]) {
			var p base.Plugin
			switch plugin {
			case "nomad-driver-caravan":
				p = New(hclog.NewNullLogger(), "/bin/true")
			case "nomad-device-caravan":
				p = devicegpu.New(hclog.NewNullLogger())
			default:
				t.Errorf("%s: there is no plugin %q", name, plugin)
				continue
			}
			found[plugin]++
			if err := configure(t, p, text); err != nil {
				t.Errorf("%s: %s: %v", name, plugin, err)
			}
		}
	}
	if found["nomad-driver-caravan"] < 3 || found["nomad-device-caravan"] < 3 {
		t.Errorf("found %v", found)
	}
	if err := configure(t, New(hclog.NewNullLogger(), "/bin/true"), "planer {}"); err == nil {
		t.Error("an unknown key is taken")
	}
}

// anyVariable stands for what a job file takes from its environment at run time.
var anyVariables = map[string]cty.Value{"NOMAD_TASK_DIR": cty.StringVal("/local"), "NOMAD_ALLOC_DIR": cty.StringVal("/alloc"), "NOMAD_SECRETS_DIR": cty.StringVal("/secrets")}

// TestJobExamples: the driver takes every task of its own in the documents and
// among the examples.
func TestJobExamples(t *testing.T) {
	texts := map[string]string{}
	files, err := filepath.Glob("../jobspecs/*.hcl")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(data)
	}
	docs, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range docs {
		for i, text := range fences(t, doc) {
			name := fmt.Sprintf("%s, example %d", doc, i)
			switch kind := regexp.MustCompile(`(?m)^\w+`).FindString(text); kind {
			case "job":
				texts[name] = text
			case "group":
				texts[name] = "job \"x\" {\n" + text + "}"
			case "task":
				texts[name] = "job \"x\" {\ngroup \"x\" {\n" + text + "}\n}"
			}
		}
	}
	found := 0
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if !strings.Contains(texts[name], `"caravan"`) {
			continue
		}
		job, err := jobhcl.Parse([]byte(texts[name]), name, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, g := range job.TaskGroups {
			for _, task := range g.Tasks {
				if task.Driver != Name {
					continue
				}
				found++
				raw, err := hclspec.EncodeMap(config.TaskSchema(), task.Config, anyVariables)
				if err == nil {
					_, err = config.ReadTask(driver.TaskConfig{Name: task.Name, AllocDir: "/a", Raw: raw}, config.Plugin{})
				}
				if err != nil {
					t.Errorf("%s: task %s: %v", name, task.Name, err)
				}
			}
		}
	}
	if found < 2 {
		t.Errorf("found only %d tasks of the driver", found)
	}
}
