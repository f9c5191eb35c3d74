package config

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/caravan-sched/caravan/planner/core/model"
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

// parse is Load for a file that was read already; read is asked for those that it
// names.
func parse(src []byte, path string, env func(string) (string, bool), read func(string) ([]byte, error)) (Config, error) {
	return document{src: src, path: path, start: hcl.InitialPos, levels: Default().Levels, env: env, read: read}.parse()
}

// document is a configuration, or a part of one, and what is around it.
type document struct {
	src   []byte
	path  string
	start hcl.Pos
	// levels are the cluster's, where the text does not name them.
	levels []Level
	// only is the type of the blocks that may be in it; "" for a whole configuration.
	only string
	// own are reservations of another file.
	own  []model.Reservation
	env  func(string) (string, bool)
	read func(string) ([]byte, error)
}

func (t document) parse() (Config, error) {
	all := &faults{}
	l := newLoader(t.path, t.src, all)
	var f fileConfig
	if t.path != "" || len(t.src) > 0 {
		file, diags := hclsyntax.ParseConfig(t.src, t.path, t.start)
		body, ok := file.Body.(*hclsyntax.Body)
		if l.diags(diags); diags.HasErrors() || !ok {
			return Config{}, all.err() // nobody knows what else it says
		}
		if t.only != "" {
			l.only(body, t.only)
		}
		l.decode(body, &f)
	}
	c := Default()
	c.Levels = t.levels
	l.merge(&c, &f)
	l.environment(&c, t.env)
	l.check(&c)
	l.checkBeside(c.Reservations, t.own)
	if l.topologyFile != "" && !l.unread["levels"] {
		l.loadTopology(&c, t.read)
	}
	l.loadQueues(&c, t.read)
	l.loadPools(&c, t.read)
	if err := all.err(); err != nil {
		return Config{}, err
	}
	return c, nil
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
		l.join(err)
		return
	}
	c.Topology = t
}
