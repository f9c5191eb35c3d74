package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// resolverPath is where programs look for their resolver's configuration
// (resolv.conf(5)).
const resolverPath = "/etc/resolv.conf"

// withResolver gives a task whose group's network has a `dns` block the resolver
// that this says, in place of the host's, as Nomad's own drivers do.
func withResolver(t driver.TaskConfig) (driver.TaskConfig, error) {
	if t.DNS == nil || len(t.DNS.Servers)+len(t.DNS.Searches)+len(t.DNS.Options) == 0 {
		return t, nil
	}
	host, err := os.ReadFile(resolverPath)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return t, fmt.Errorf("read the host's resolver configuration: %w", err)
	}
	text, err := resolverText(*t.DNS, string(host))
	if err != nil {
		return t, err
	}
	path := filepath.Join(t.TaskDir(), "resolv.conf")
	if err := writeAnew(path, text); err != nil {
		return t, fmt.Errorf("write the task's resolver configuration: %w", err)
	}
	t.Mounts = append(t.Mounts[:len(t.Mounts):len(t.Mounts)], driver.Mount{HostPath: path, TaskPath: resolverPath, ReadOnly: true, Propagation: "private"})
	return t, nil
}

// writeAnew writes a file that nobody has put something in the place of: tasks
// may write into the directory.
func writeAnew(path, text string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// resolverText is the file's text. Of what the block leaves out the host's lines
// hold.
func resolverText(d driver.DNS, host string) (string, error) {
	var faults []error
	check := func(key string, values []string) {
		for _, v := range values {
			if v == "" || strings.ContainsAny(v, " \t\r\n") {
				faults = append(faults, fmt.Errorf("dns.%s is %q: allowed is one word", key, v))
			}
		}
	}
	check("servers", d.Servers)
	check("searches", d.Searches)
	check("options", d.Options)
	var lines []string
	for _, server := range d.Servers {
		lines = append(lines, "nameserver "+server)
	}
	if len(d.Searches) > 0 {
		lines = append(lines, "search "+strings.Join(d.Searches, " "))
	}
	if len(d.Options) > 0 {
		lines = append(lines, "options "+strings.Join(d.Options, " "))
	}
	given := map[string]bool{"nameserver": len(d.Servers) > 0, "search": len(d.Searches) > 0, "domain": len(d.Searches) > 0, "options": len(d.Options) > 0}
	for line := range strings.Lines(host) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		if own, known := given[words[0]]; known && !own {
			lines = append(lines, strings.Join(words, " "))
		}
	}
	return strings.Join(lines, "\n") + "\n", errors.Join(faults...)
}
