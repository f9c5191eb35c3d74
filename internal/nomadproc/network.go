package nomadproc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caravan-sched/caravan/internal/devcluster"
)

// network is a bridge with a cable to each node, which has a network namespace
// of its own. The server is on the bridge.
type network struct {
	// prefix begins the names of all parts, so that the reaper finds them.
	prefix string
	// subnet are the first three parts of the addresses.
	subnet string
	spaces []*space
}

// space is a node's network namespace.
type space struct {
	name string
	// link is the host's end of the cable.
	link string
}

// newNetwork chooses names and addresses.
func newNetwork() (*network, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: this needs root", devcluster.ErrNoNetworks)
	}
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: %w", devcluster.ErrNoNetworks, err)
		}
	}
	id := rand.IntN(1 << 14)
	return &network{prefix: fmt.Sprintf("cvn%04x", id), subnet: fmt.Sprintf("10.%d.%d", 192+id>>8, id&0xff)}, nil
}

// address is the server's for 0, and then the nodes'.
func (n *network) address(i int) string { return fmt.Sprintf("%s.%d", n.subnet, i+1) }

// build makes the bridge, and a namespace with a cable for each node.
func (n *network) build(ctx context.Context, nodes int) error {
	bridge := n.prefix + "b"
	if err := ip(ctx, "link", "add", bridge, "type", "bridge"); err != nil {
		return fmt.Errorf("%w: %w", devcluster.ErrNoNetworks, err)
	}
	steps := [][]string{{"addr", "add", n.address(0) + "/24", "dev", bridge}, {"link", "set", bridge, "up"}}
	for i := range nodes {
		s := &space{name: fmt.Sprintf("%sn%d", n.prefix, i), link: fmt.Sprintf("%sh%d", n.prefix, i)}
		n.spaces = append(n.spaces, s)
		inside := func(args ...string) []string { return append([]string{"-n", s.name}, args...) }
		steps = append(steps,
			[]string{"netns", "add", s.name},
			[]string{"link", "add", s.link, "type", "veth", "peer", "name", "eth0", "netns", s.name},
			[]string{"link", "set", s.link, "master", bridge, "up"},
			inside("link", "set", "lo", "up"),
			inside("addr", "add", n.address(i+1)+"/24", "dev", "eth0"),
			inside("link", "set", "eth0", "up"),
		)
	}
	for _, s := range steps {
		if err := ip(ctx, s...); err != nil {
			return fmt.Errorf("%w: %w", devcluster.ErrNoNetworks, err)
		}
	}
	return nil
}

// command runs another one in the namespace.
func (s *space) command() []string { return []string{"nsenter", "--net=" + s.path(), "--"} }

func (s *space) path() string { return "/run/netns/" + s.name }

// dial connects from within the namespace, which belongs to the thread for a
// moment. A thread that cannot come back ends with its goroutine.
func (s *space) dial(ctx context.Context, kind, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- result{err: fmt.Errorf("find own network: %w", err)}
			return
		}
		defer home.Close()
		there, err := os.Open(s.path())
		if err != nil {
			done <- result{err: fmt.Errorf("find network of node: %w", err)}
			return
		}
		defer there.Close()
		if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{err: fmt.Errorf("enter network of node: %w", err)}
			return
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, kind, address)
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// ip runs the tool of that name.
func ip(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("ip %s: %w", strings.Join(args, " "), err), errors.New(strings.TrimSpace(string(out))))
	}
	return nil
}
