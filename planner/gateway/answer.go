package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// refuse answers with a sentence in plain text, the form of Nomad's own errors:
// its CLI prints the body after the status.
func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// The client may be gone: there is nobody left to tell.
	_, _ = fmt.Fprintf(w, format, args...)
}

// problem is an error with the status that it is answered with.
type problem struct {
	status int
	text   string
}

func (p *problem) Error() string { return p.text }

func problemf(status int, format string, args ...any) *problem {
	return &problem{status: status, text: fmt.Sprintf(format, args...)}
}

// encodeFor encodes v as Nomad would: JSON, indented when the query asks for
// "pretty".
func encodeFor(r *http.Request, v any) ([]byte, error) {
	if pretty, ok := r.URL.Query()["pretty"]; ok && (len(pretty) == 0 || pretty[0] != "0") {
		body, err := json.MarshalIndent(v, "", "    ")
		return append(body, '\n'), err
	}
	return json.Marshal(v)
}

// answer writes v as Nomad would.
func answer(w http.ResponseWriter, r *http.Request, index uint64, v any) error {
	body, err := encodeFor(r, v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	if index > 0 {
		w.Header().Set("X-Nomad-Index", strconv.FormatUint(index, 10))
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}
