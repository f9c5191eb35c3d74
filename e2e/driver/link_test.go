package driver

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// link is a way from the members to a planner that can fail.
type link struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	state linkState
	conns map[net.Conn]bool
	// babbled counts what was answered with nonsense, here and by other links.
	babbled *atomic.Int64
}

type linkState int

const (
	// linkUp passes everything on, linkDown ends every connection, and
	// linkNonsense answers by itself, wrongly.
	linkUp linkState = iota
	linkDown
	linkNonsense
)

func newLink(address, to string, babbled *atomic.Int64) (*link, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	k := &link{listener: l, to: to, conns: map[net.Conn]bool{}, babbled: babbled}
	go k.accept()
	return k, nil
}

func (k *link) close() error {
	err := k.listener.Close()
	k.set(linkDown)
	return err
}

// set changes what becomes of requests, also of those under way.
func (k *link) set(s linkState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state = s
	for c := range k.conns {
		c.Close()
	}
}

func (k *link) accept() {
	for {
		c, err := k.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			go k.serve(c)
		}
	}
}

// keep notes a connection, unless there is to be none.
func (k *link) keep(c net.Conn) (linkState, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == linkDown {
		return k.state, false
	}
	k.conns[c] = true
	return k.state, true
}

func (k *link) drop(c net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
	c.Close()
}

func (k *link) serve(c net.Conn) {
	state, ok := k.keep(c)
	defer k.drop(c)
	switch {
	case !ok:
	case state == linkNonsense:
		k.babble(c)
	default:
		up, err := net.Dial("tcp", k.to)
		if err != nil {
			return
		}
		defer up.Close()
		go func() {
			defer c.Close()
			io.Copy(c, up)
		}()
		io.Copy(up, c)
	}
}

// nonsense is what an address answers that was a planner once, or is a broken
// one, or one that lies.
var nonsense = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull",
	"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"state\":",
	"HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{\"state\":\"start\"}",
	"HTTP/1.1 200 OK\r\nContent-Length: 41\r\n\r\n{\"state\":\"start\",\"membership\":{\"epoch\":1}}",
	"HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n{\"state\":\"explode\",\"attached\":\"yes\",\"size\":-1}",
	"HTTP/1.1 200 OK\r\nContent-Length: 61\r\n\r\n{\"attached\":true,\"order\":{\"sequence\":99999,\"kind\":\"explode\"}}",
	"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
	"\x00\x01\x02 this is no HTTP\r\n\r\n",
	"",
}

func (k *link) babble(c net.Conn) {
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	io.Copy(io.Discard, req.Body)
	io.WriteString(c, nonsense[int(k.babbled.Add(1))%len(nonsense)])
}
