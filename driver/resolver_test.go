package driver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

func TestResolverText(t *testing.T) {
	const host = "# by DHCP\nnameserver 10.0.0.2\nnameserver  10.0.0.3\ndomain old.example\nsearch host.example\noptions edns0\nsortlist x\nnonsense\n"
	tests := map[string]struct {
		dns  driver.DNS
		want string
		// faults are words of the error.
		faults []string
	}{
		"servers": {
			dns:  driver.DNS{Servers: []string{"10.1.0.2", "10.1.0.3"}},
			want: "nameserver 10.1.0.2\nnameserver 10.1.0.3\ndomain old.example\nsearch host.example\noptions edns0\n",
		},
		"searches and options": {
			dns:  driver.DNS{Searches: []string{"a.example", "b.example"}, Options: []string{"ndots:2"}},
			want: "search a.example b.example\noptions ndots:2\nnameserver 10.0.0.2\nnameserver 10.0.0.3\n",
		},
		"nonsense": {
			dns:    driver.DNS{Servers: []string{"10.1.0.2\noptions x"}, Searches: []string{""}, Options: []string{"a b"}},
			faults: []string{"dns.servers", "dns.searches", "dns.options"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := resolverText(test.dns, host)
			for _, want := range test.faults {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v lacks %q", err, want)
				}
			}
			if test.faults == nil && (err != nil || got != test.want) {
				t.Errorf("text = %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

// TestResolver: the task sees its own configuration, and the host keeps its.
func TestResolver(t *testing.T) {
	host, err := os.ReadFile(resolverPath)
	if err != nil {
		t.Skipf("the host has none: %v", err)
	}
	if f, err := exec.Probe(); err != nil || !strings.Contains(strings.Join(f.Namespaces, ","), "mnt") {
		t.Skipf("needs mount namespaces: %v", err)
	}
	r := newRig(t)
	outside := filepath.Join(t.TempDir(), "outside")
	task := r.limited("a", "cat "+resolverPath, "", func(t *driver.TaskConfig) {
		t.DNS = &driver.DNS{Servers: []string{"192.0.2.53"}, Searches: []string{"gang.example"}, Options: []string{"ndots:3"}}
		// What an earlier run has left is no way out.
		if err := os.Symlink(outside, filepath.Join(t.TaskDir(), "resolv.conf")); err != nil {
			r.t.Fatal(err)
		}
	})
	if e := r.exit(task.ID); e != (driver.Exit{}) {
		t.Errorf("exit = %+v", e)
	}
	if got, want := r.output(task, "\n"), "nameserver 192.0.2.53\nsearch gang.example\noptions ndots:3\n"; got != want {
		t.Errorf("the task sees %q, want %q", got, want)
	}
	if now, err := os.ReadFile(resolverPath); err != nil || string(now) != string(host) {
		t.Errorf("the host has %q, %v, want %q", now, err, host)
	}
	if _, err := os.Stat(outside); err == nil {
		t.Error("written through a link")
	}
}
