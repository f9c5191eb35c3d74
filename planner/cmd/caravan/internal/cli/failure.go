package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/httpapi"
)

// failure is what a command that failed prints as JSON, if it has printed
// nothing else.
type failure struct {
	Error string `json:"error"`
	// Do says what can be done about it.
	Do string `json:"what_to_do,omitempty"`
}

// counter counts what was written.
type counter struct {
	w io.Writer
	n int
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += n
	return n, err
}

// jsonAsked looks for --json itself: flags that cannot be parsed are reported
// as JSON too.
func jsonAsked(args []string) bool {
	asked := false
	for _, arg := range doubleDashes(args) {
		switch arg {
		case "--":
			return asked
		case "--json", "--json=true":
			asked = true
		case "--json=false":
			asked = false
		}
	}
	return asked
}

// fail says on standard error what went wrong, and on standard output too
// where a program waits for its JSON value.
func (a *app) fail(f failure, asJSON bool) {
	text := "Error: " + f.Error
	if f.Do != "" {
		text += "\n" + f.Do
	}
	fmt.Fprintln(a.env.Stderr, text)
	if !asJSON {
		return
	}
	enc := json.NewEncoder(a.env.Stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(f); err != nil {
		fmt.Fprintf(a.env.Stderr, "Error: write JSON: %v\n", err)
	}
}

// failureOf adds to an error what can be done about it. path is the command's.
func (a *app) failureOf(e *exit, path string) failure {
	var dial *net.OpError
	var own *httpapi.Error
	var nomad api.UnexpectedResponseError
	status := 0
	f := failure{Error: e.err.Error()}
	switch {
	case errors.As(e.err, &dial) && dial.Op == "dial":
		f.Error = fmt.Sprintf("cannot reach the planner at %s: %v", a.plannerAddress(), dial.Err)
		f.Do = "Start it with `caravan agent -config FILE` (`caravan dev` starts a whole cluster to try), or say with --address or CARAVAN_ADDR where it runs."
	case errors.As(e.err, &own):
		status = own.Status
		if own.Do != "" {
			f.Error = strings.Replace(f.Error, own.Error(), own.Message, 1)
			f.Do = sentence(own.Do)
		}
	case errors.As(e.err, &nomad):
		status = nomad.StatusCode()
		f.Error = nomadWords(e.err, nomad)
	case e.code == CodeUsage:
		f.Do = fmt.Sprintf("Run '%s --help' for help.", path)
	}
	if status == http.StatusForbidden || status == http.StatusUnauthorized {
		if strings.Contains(f.Do, httpapi.TokenHeader) {
			f.Do = "" // it is for who writes requests himself
		}
		f.Do = strings.TrimSpace(f.Do + "\nGive a Nomad ACL token that may do this, with --token or NOMAD_TOKEN, and the namespace in which it may, with --namespace or NOMAD_NAMESPACE.")
	}
	return f
}

// sentence makes a remark one.
func sentence(text string) string {
	if text = strings.ToUpper(text[:1]) + text[1:]; !slices.Contains([]byte(".!?`"), text[len(text)-1]) {
		text += "."
	}
	return text
}

// nomadWords leaves out of an error what only repeats the status code.
func nomadWords(err error, answer api.UnexpectedResponseError) string {
	body := strings.TrimSpace(answer.Body())
	if status := answer.StatusCode(); !strings.HasPrefix(body, "{") && body != "" && status >= 400 && status < 500 {
		return body // it says what is wrong with the request
	}
	if body != "" {
		return fmt.Sprintf("answer %d: %s", answer.StatusCode(), body)
	}
	return err.Error()
}
