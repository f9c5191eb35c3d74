package daemon

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
)

// permissionDenied is all that Nomad says to a token that lacks a right.
const permissionDenied = "Permission denied"

// nameRights adds to Nomad's refusals, as the gateway passes them on, which
// right it was that the caller's token lacks.
func nameRights(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := &deniedWriter{ResponseWriter: w, right: rightFor(r)}
		next.ServeHTTP(d, r)
		d.finish()
	})
}

// deniedWriter keeps the body of a refusal back until it is whole. Everything
// else passes through; Unwrap lets streams and upgrades do so too.
type deniedWriter struct {
	http.ResponseWriter
	right string
	// refused is the status of an answer that is kept back, 0 for others.
	refused int
	body    bytes.Buffer
}

// Unwrap is for http.ResponseController.
func (d *deniedWriter) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (d *deniedWriter) WriteHeader(status int) {
	// Where Nomad asks another agent, its refusal comes back as a 500.
	if d.right == "" || status != http.StatusForbidden && status != http.StatusInternalServerError {
		d.ResponseWriter.WriteHeader(status)
		return
	}
	d.refused = status
}

// Write implements io.Writer.
func (d *deniedWriter) Write(p []byte) (int, error) {
	if d.refused != 0 {
		return d.body.Write(p)
	}
	return d.ResponseWriter.Write(p)
}

// FlushError implements what http.ResponseController looks for: there is
// nothing to send yet of what is kept back.
func (d *deniedWriter) FlushError() error {
	if d.refused != 0 {
		return nil
	}
	return http.NewResponseController(d.ResponseWriter).Flush()
}

func (d *deniedWriter) finish() {
	if d.refused == 0 {
		return
	}
	body := d.body.Bytes()
	if strings.TrimSpace(string(d.plain())) == permissionDenied {
		body = []byte(permissionDenied + ": the token lacks " + d.right)
		d.Header().Del("Content-Encoding")
		d.Header().Del("Content-Length")
	}
	d.ResponseWriter.WriteHeader(d.refused)
	// A client that has gone away is no fault of ours.
	_, _ = d.ResponseWriter.Write(body)
}

// plain is the start of the body, unpacked.
func (d *deniedWriter) plain() []byte {
	if d.Header().Get("Content-Encoding") != "gzip" {
		return d.body.Bytes()
	}
	z, err := gzip.NewReader(bytes.NewReader(d.body.Bytes()))
	if err != nil {
		return nil
	}
	out, err := io.ReadAll(io.LimitReader(z, 2*int64(len(permissionDenied))))
	if err != nil {
		return nil
	}
	return out
}

// rightFor names what Nomad asks for with a request; "" where it is not one
// right of one place.
func rightFor(r *http.Request) string {
	path, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	if !ok {
		return ""
	}
	first, rest, _ := strings.Cut(path, "/")
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	right := ""
	switch first {
	case "nodes", "node":
		return oneOf(read, "node:read", "node:write")
	case "operator", "scheduler":
		return oneOf(read, "operator:read", "operator:write")
	case "agent", "metrics":
		return oneOf(read, "agent:read", "agent:write")
	case "acl", "system":
		return "management"
	case "vars", "var":
		return variableRight(r, first, rest)
	case "jobs":
		right = oneOf(read, "list-jobs", "submit-job")
		if rest == "parse" {
			right = "parse-job"
		}
	case "job":
		right = jobRight(read, rest)
	case "allocations", "allocation":
		right = oneOf(read, "read-job", "alloc-lifecycle")
	case "client":
		right = clientRight(rest)
	case "evaluations", "evaluation", "deployments", "deployment":
		right = oneOf(read, "read-job", "submit-job")
	}
	if right == "" {
		return ""
	}
	return right + inNamespace(r)
}

func oneOf(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// jobRight is that of a part of a job. Its ID may hold slashes, so the part is
// what stands last.
func jobRight(read bool, rest string) string {
	switch last := rest[strings.LastIndexByte(rest, '/')+1:]; {
	case read:
		return "read-job"
	case last == "dispatch":
		return "dispatch-job"
	case last == "scale":
		return "scale-job"
	}
	return "submit-job"
}

func clientRight(rest string) string {
	area, rest, _ := strings.Cut(rest, "/")
	last := rest[strings.LastIndexByte(rest, '/')+1:]
	switch {
	case area == "fs" && strings.HasPrefix(rest, "logs/"):
		return "read-logs"
	case area == "fs":
		return "read-fs"
	case area == "allocation" && last == "exec":
		return "alloc-exec"
	case area == "allocation" && (last == "restart" || last == "signal"):
		return "alloc-lifecycle"
	case area == "allocation":
		return "read-job"
	}
	return ""
}

func variableRight(r *http.Request, first, path string) string {
	verb := "write"
	switch {
	case first == "vars":
		verb = "list"
	case r.Method == http.MethodGet:
		verb = "read"
	case r.Method == http.MethodDelete:
		verb = "destroy"
	}
	if path == "" {
		path = r.URL.Query().Get("prefix") + "*"
	}
	return verb + " on variables path " + path + inNamespace(r)
}

// inNamespace names the request's namespace. A job file may name another, so
// nothing is said where the request does not.
func inNamespace(r *http.Request) string {
	if ns := r.URL.Query().Get("namespace"); ns != "" {
		return " in namespace " + ns
	}
	return ""
}
