// Package devjoin is the process of a client that joins a development cluster while
// it runs, as a machine that was bought does: a real Nomad agent, or a process that
// stands for the stand-in's client. Its end is the end of the machine.
package devjoin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadproc"
)

// NodeName stands for the node's name in its plugins' configuration.
const NodeName = "@node@"

// meta is a flag that is given once for each key.
type meta map[string]string

// String implements flag.Value.
func (m meta) String() string { return fmt.Sprint(map[string]string(m)) }

// Set implements flag.Value.
func (m meta) Set(kv string) error {
	key, value, ok := strings.Cut(kv, "=")
	if !ok || key == "" {
		return fmt.Errorf("%q: want KEY=VALUE", kv)
	}
	m[key] = value
	return nil
}

// Run joins as the first argument, a file with a devcluster.Joining, says, with the
// flags that nomad agent has too: -node, -data-dir and -meta. It returns when the
// client is no more.
func Run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("join cluster: want a file that says how")
	}
	raw, err := os.ReadFile(args[0])
	var j devcluster.Joining
	if err == nil {
		err = json.Unmarshal(raw, &j)
	}
	if err != nil {
		return fmt.Errorf("join cluster: read %s: %w", args[0], err)
	}
	more, dir := meta{}, ""
	flags := flag.NewFlagSet("dev-client", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&j.Node.Name, "node", j.Node.Name, "the node's name")
	flags.StringVar(&dir, "data-dir", "", "where it keeps its data")
	flags.Var(more, "meta", "KEY=VALUE of its meta, once for each")
	if err := flags.Parse(args[1:]); err != nil {
		return fmt.Errorf("join cluster: %w", err)
	}
	all := maps.Clone(j.Node.Meta)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, more)
	j.Node.Meta = all
	for i := range j.Node.Plugins {
		p := &j.Node.Plugins[i]
		p.Config = strings.ReplaceAll(p.Config, NodeName, j.Node.Name)
	}
	switch {
	case j.Node.Name == "" || flags.NArg() > 0:
		return fmt.Errorf("join cluster: want -node=NAME and flags only, not %q", flags.Args())
	case j.Backend == devcluster.BackendNomad && dir == "":
		return errors.New("join cluster: want -data-dir=DIR")
	case j.Backend == devcluster.BackendNomad:
		return nomadproc.ExecClient(j, dir)
	default:
		return hold(ctx, j, out)
	}
}

// hold joins the stand-in and stays until one of both ends.
func hold(ctx context.Context, j devcluster.Joining, out io.Writer) error {
	body, err := json.Marshal(j.Node)
	if err != nil {
		return fmt.Errorf("join cluster: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, j.Address+devnomad.JoinPath, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("join cluster: %w", err)
	}
	req.Header.Set("X-Nomad-Token", j.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("join cluster: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("join cluster: %s: %s", resp.Status, strings.TrimSpace(string(said)))
	}
	if _, err := io.Copy(out, resp.Body); err != nil && ctx.Err() == nil {
		return fmt.Errorf("stay in cluster: %w", err)
	}
	return ctx.Err()
}
