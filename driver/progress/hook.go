package progress

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

// HookPath is where progress is posted to, below the hook's URL.
const HookPath = "/v1/progress"

// maxHookConnections bounds the hook's connections; more wait to be accepted.
const maxHookConnections = 64

// hook opens the HTTP hook.
func (s *Source) hook() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the progress hook: %w", err)
	}
	secret := "/" + rand.Text()
	s.url = "http://" + l.Addr().String() + secret
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+secret+HookPath, s.post)
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	s.closers = append(s.closers, func() { _ = server.Close() })
	s.running.Go(func() {
		if err := server.Serve(netutil.LimitListener(l, maxHookConnections)); !errors.Is(err, http.ErrServerClosed) {
			s.faults.tell("hook", fmt.Errorf("serve the progress hook: %w", err))
		}
	})
	return nil
}

// post takes progress in. What is wrong with it is answered as well as told.
func (s *Source) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLine))
	status := http.StatusRequestEntityTooLarge
	var t told
	if err == nil {
		status = http.StatusBadRequest
		t, err = parseJSON(body)
	}
	if err != nil {
		s.faults.tell("post", fmt.Errorf("read progress by HTTP: %w", err))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		// The client may be gone; nobody else wants the answer.
		_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
		return
	}
	if t != (told{}) {
		s.apply(t)
	}
	w.WriteHeader(http.StatusNoContent)
}
