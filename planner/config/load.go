package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// maxFile bounds a configuration file, in bytes. A topology of 16,384 nodes
// named one by one is below 1 MiB.
const maxFile = 16 << 20

// Load reads the configuration from the file at path, with the environment
// above it and the defaults below it. An empty path means no file. The error
// joins every fault found, each with its place.
func Load(path string, env func(string) (string, bool)) (Config, error) {
	var src []byte
	if path != "" {
		var err error
		if src, err = readFile(path); err != nil {
			return Config{}, fmt.Errorf("read configuration: %w", err)
		}
	}
	return parse(src, path, env, readFile)
}

// Parse is Load for a file that was read already; read is asked for the
// topology file that it may name.
func Parse(src []byte, path string, env func(string) (string, bool), read func(string) ([]byte, error)) (Config, error) {
	return parse(src, path, env, read)
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are allowed", path, info.Size(), maxFile)
	}
	return os.ReadFile(path)
}

func parse(src []byte, path string, env func(string) (string, bool), read func(string) ([]byte, error)) (Config, error) {
	return parseFor(src, path, Default().Levels, env, read)
}

// parseFor reads a configuration, or a part of one, for a cluster with such
// levels.
func parseFor(src []byte, path string, levels []Level, env func(string) (string, bool), read func(string) ([]byte, error)) (Config, error) {
	return parseFrom(hcl.InitialPos, src, path, levels, env, read)
}

// parseFrom is parseFor for a text that starts at a position of its own.
func parseFrom(start hcl.Pos, src []byte, path string, levels []Level, env func(string) (string, bool), read func(string) ([]byte, error)) (Config, error) {
	l := &loader{path: path}
	var f fileConfig
	if path != "" || len(src) > 0 {
		file, diags := hclsyntax.ParseConfig(src, path, start)
		l.diags(diags)
		if file != nil {
			l.body, _ = file.Body.(*hclsyntax.Body)
		}
		if !diags.HasErrors() {
			l.diags(gohcl.DecodeBody(file.Body, nil, &f))
		}
	}
	c := Default()
	c.Levels = levels
	l.merge(&c, &f)
	l.environment(&c, env)
	l.check(&c)
	if l.topologyFile != "" {
		l.loadTopology(&c, read)
	}
	l.loadQueues(&c, read)
	l.loadPools(&c, read)
	if len(l.faults) > 0 {
		return Config{}, errors.Join(l.faults...)
	}
	return c, nil
}

// loader gathers faults on the way.
type loader struct {
	path         string
	body         *hclsyntax.Body
	faults       []error
	topologyFile string
	queuesFile   string
	// federated: there is a federation block.
	federated bool
	poolsFile string
	// fromEnv maps a key to the environment variable that set it.
	fromEnv map[string]string
}

// diags keeps HCL's own findings, in the form FILE:LINE: text.
func (l *loader) diags(diags hcl.Diagnostics) {
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		text := d.Summary
		if d.Detail != "" {
			text += ": " + d.Detail
		}
		at := l.path
		if d.Subject != nil {
			at = fmt.Sprintf("%s:%d", d.Subject.Filename, d.Subject.Start.Line)
		}
		l.faults = append(l.faults, fmt.Errorf("%s: %s", at, text))
	}
}

// fault adds a fault of the key at that path, written "block.key".
func (l *loader) fault(key string, value any, allowed string) {
	at := l.path
	if v, ok := l.fromEnv[key]; ok {
		at = "environment variable " + v
	} else if line := locate(l.body, key); line > 0 {
		at = fmt.Sprintf("%s:%d", l.path, line)
	}
	if at == "" {
		at = "default"
	}
	l.faults = append(l.faults, fmt.Errorf("%s: %s is %s: %s", at, key, quote(value), allowed))
}

// faultText adds a fault of the key at that path in words of its own.
func (l *loader) faultText(key, text string) {
	at := l.path
	if line := locate(l.body, key); line > 0 {
		at = fmt.Sprintf("%s:%d", l.path, line)
	}
	l.faults = append(l.faults, fmt.Errorf("%s: %s", at, text))
}

func quote(v any) string {
	if s, ok := v.(string); ok {
		return strconv.Quote(s)
	}
	return fmt.Sprint(v)
}

// beside is the path of a file that a key names: a relative one is beside the
// configuration, wherever the planner was started.
func (l *loader) beside(key, file string) string {
	if l.path == "" || filepath.IsAbs(file) || l.fromEnv[key] != "" {
		return file
	}
	return filepath.Join(filepath.Dir(l.path), file)
}

func (l *loader) loadTopology(c *Config, read func(string) ([]byte, error)) {
	file := l.beside("topology_file", l.topologyFile)
	src, err := read(file)
	if err != nil {
		l.fault("topology_file", l.topologyFile, "it cannot be read: "+err.Error())
		return
	}
	t, err := ParseTopology(src, file, c.LevelNames())
	if err != nil {
		l.faults = append(l.faults, err)
		return
	}
	c.Topology = t
}
