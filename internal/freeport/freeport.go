// Package freeport finds ports for processes that must know theirs before they
// listen. One of the system's choice (port 0) may be taken again before that:
// by any connection that is made meanwhile, or by another process that asks.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// The ports are below those that the system gives to connections (32768 on), and
// below those that development clusters give to tasks (12000 on).
const (
	first = 10_000
	count = 2_000
)

// ErrNone means that every port of the range is taken.
var ErrNone = errors.New("no port is free")

// Take returns a port of an address on which nothing listens. No other call
// returns it, in any process of the machine, until this process has ended.
func Take(host string) (int, error) {
	start := rand.IntN(count)
	for i := range count {
		port := first + (start+i)%count
		ok, err := claim(port)
		if err != nil {
			return 0, fmt.Errorf("find a free port on %s: %w", host, err)
		}
		if !ok {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if errors.Is(err, unix.EADDRINUSE) {
			continue // the claim stays: it is of no use to others either
		}
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			return 0, fmt.Errorf("find a free port on %s: %w", host, err)
		}
		return port, nil
	}
	return 0, fmt.Errorf("find a free port on %s from %d to %d: %w", host, first, first+count-1, ErrNone)
}

// claim binds an abstract socket that is named after the port. It is a bare
// descriptor, so that nothing but the end of the process closes it, and a child
// does not inherit it.
func claim(port int) (bool, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@caravan-port-%d", port)})
	if err == nil {
		return true, nil
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return false, unix.Close(fd)
	}
	return false, errors.Join(err, unix.Close(fd))
}
