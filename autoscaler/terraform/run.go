package terraform

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"
)

// markVariable is the environment variable, of Terraform's own, that marks all
// processes of a run. A process that is to outlive the run must not inherit it.
const markVariable = "TF_APPEND_USER_AGENT"

// maxMessage bounds what an error quotes of Terraform.
const maxMessage = 2000

// run is one use of the Terraform command line, or several after each other.
type run struct {
	d    *Directory
	tf   *tfexec.Terraform
	mark string
	// lockWait is how long to wait for the state's lock.
	lockWait time.Duration
}

// outlive is the script by which an apply outlives us; see there.
//
//go:embed outlive.sh
var outlive string

func (d *Directory) newRun() (*run, error) {
	script, err := d.store.install("run", outliving(d.cfg.Binary, d.store.path(d.outputName())))
	if err != nil {
		return nil, err
	}
	tf, err := tfexec.NewTerraform(d.cfg.Dir, script)
	if err != nil {
		return nil, &Error{Reason: ReasonError, Kind: ErrConfig, Message: d.redact.clean(err.Error()), Cause: err}
	}
	r := &run{d: d, tf: tf, mark: "caravan-run-" + rand.Text(), lockWait: d.cfg.LockWait}
	if err := errors.Join(tf.SetAppendUserAgent(r.mark), tf.SetWaitDelay(d.cfg.Grace)); err != nil {
		return nil, fmt.Errorf("set up Terraform: %w", err)
	}
	return r, nil
}

// outliving is the script for a program and a file for its output. They stand in it,
// since the environment is Terraform's.
func outliving(binary, output string) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	return strings.NewReplacer(`"$CARAVAN_TERRAFORM"`, quote(binary), `"$CARAVAN_OUTPUT"`, quote(output)).Replace(outlive)
}

// step runs f within a limit and says what went wrong. What does not end is
// interrupted, and then killed with all that it has started.
func (r *run) step(ctx context.Context, what string, limit time.Duration, f func(ctx context.Context, w io.Writer) error) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	log := &uiLog{d: r.d, what: what}
	// Terraform may be gone and one that it has started hold its output open, or a
	// wrapper may not pass the interrupt on: both would be waited for without end.
	ended, forced := make(chan struct{}), make(chan int, 1)
	stop := context.AfterFunc(bounded, func() {
		select {
		case <-ended:
			forced <- 0
		case <-time.After(r.d.cfg.Grace):
			forced <- killMarked(r.mark)
		}
	})
	err := f(bounded, log)
	close(ended)
	left := 0
	if !stop() {
		left = <-forced
	}
	r.tf.SetStdout(io.Discard)
	log.flush()
	if err == nil {
		return nil
	}
	if bounded.Err() != nil {
		left += killMarked(r.mark)
		if what == "apply" {
			log.readFile(r.d.store.path(r.d.outputName()))
		}
		reason, how := ReasonTimeout, fmt.Sprintf("did not end within %s", limit)
		if ctx.Err() != nil {
			reason, how = ReasonError, "was stopped"
		}
		message := fmt.Sprintf("terraform %s %s and was interrupted", what, how)
		if left > 0 {
			message += fmt.Sprintf("; %d processes of it had to be killed", left)
		}
		if log.last != "" {
			message += "; the last it said: " + log.last
		}
		return &Error{Reason: reason, Kind: ErrHung, Message: message, Cause: err}
	}
	return r.d.explain(what, log.diagnostics, err)
}

// explain makes an error out of what Terraform said.
func (d *Directory) explain(what string, said []diagnostic, cause error) error {
	var texts, resources []string
	e := &Error{Reason: ReasonError, Cause: cause}
	for _, s := range said {
		text := s.Summary
		if s.Detail != "" {
			text += ": " + s.Detail
		}
		switch {
		case s.Address != "":
			resources = append(resources, s.Address)
			text = s.Address + ": " + text
		case s.Range != nil:
			text = fmt.Sprintf("%s:%d: %s", s.Range.Filename, s.Range.Start.Line, text)
		}
		texts = append(texts, text)
		if isVariable(s.Summary) {
			e.Kind = ErrVariable
		}
	}
	all := strings.Join(texts, "; ")
	if all == "" {
		all = cause.Error()
	}
	reason, advice := classify(all)
	e.Reason, e.Resources = reason, resources
	lock, locked := parseLock(all)
	switch {
	case isNoState(all):
		// Without one that can be read no lock is to be had, either; nobody holds it.
		e.Kind, advice = ErrState, fmt.Sprintf("Restore the state of %s from its backup, or use a version that can read it", d.cfg.Dir)
	case locked && lock.ID == "":
		e.Kind, e.Cause = ErrLocked, lockedError{lock, cause}
		advice = "The backend tells nothing of the lock: see that it can be reached, and that nobody else plans or applies there"
	case locked:
		e.Kind, e.Cause = ErrLocked, lockedError{lock, cause}
		advice = fmt.Sprintf("Lock %s is held by %s. If nothing of it applies any more, run in %s: terraform force-unlock %s", lock.ID, cmp.Or(lock.Who, "somebody whom the backend does not name"), d.cfg.Dir, lock.ID)
	case isUninitialised(all):
		e.Kind, advice = ErrUninitialised, fmt.Sprintf("Run terraform init in %s", d.cfg.Dir)
	case e.Kind != nil:
		advice = "Set it in a var file"
	case what == "apply":
		e.Kind = ErrApply
	case what == "show":
		e.Kind = ErrState
	default:
		e.Kind = ErrPlan
	}
	all = strings.Join(strings.Fields(d.redact.clean(all)), " ")
	if len(all) > maxMessage {
		all = strings.ToValidUTF8(all[:maxMessage], "") + "…"
	}
	e.Message = fmt.Sprintf("terraform %s: %s", what, all)
	if advice != "" {
		e.Message = strings.TrimSuffix(e.Message, ".") + ". " + advice
	}
	return e
}

// lockedError carries who holds the lock.
type lockedError struct {
	lock  StateLock
	cause error
}

func (e lockedError) Error() string { return "state is locked by " + e.lock.Who }
func (e lockedError) Unwrap() error { return e.cause }

// diagnostic is what Terraform complains of.
type diagnostic struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
	Address  string `json:"address"`
	// Range is the place in the configuration, if it is about one.
	Range *struct {
		Filename string `json:"filename"`
		Start    struct {
			Line int `json:"line"`
		} `json:"start"`
	} `json:"range"`
}

// uiLog reads Terraform's machine-readable output: errors are kept, the rest is
// logged.
type uiLog struct {
	d           *Directory
	what        string
	partial     bytes.Buffer
	diagnostics []diagnostic
	last        string
}

// Write implements io.Writer.
func (l *uiLog) Write(p []byte) (int, error) {
	l.partial.Write(p)
	for {
		line, rest, whole := bytes.Cut(l.partial.Bytes(), []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.line(line)
		l.partial = *bytes.NewBuffer(bytes.Clone(rest))
	}
}

// readFile reads what was not passed on.
func (l *uiLog) readFile(path string) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return
	}
	_, _ = l.Write(raw) // it cannot fail
	l.flush()
}

func (l *uiLog) flush() {
	l.line(l.partial.Bytes())
	l.partial.Reset()
}

func (l *uiLog) line(raw []byte) {
	var m struct {
		Message    string      `json:"@message"`
		Type       string      `json:"type"`
		Diagnostic *diagnostic `json:"diagnostic"`
	}
	if len(bytes.TrimSpace(raw)) == 0 || json.Unmarshal(raw, &m) != nil || m.Message == "" {
		return
	}
	if m.Diagnostic != nil && m.Diagnostic.Severity == "error" {
		l.diagnostics = append(l.diagnostics, *m.Diagnostic)
		return
	}
	text := l.d.redact.clean(m.Message)
	if m.Type != "version" {
		l.last = text
	}
	l.d.log.Debug("terraform "+l.what, "says", text)
}

// killMarked kills every process that carries a run's mark, and says how many
// there were.
func killMarked(mark string) int {
	killed := map[int]bool{}
	for range 10 { // what is killed may have begun another
		found := marked(mark)
		if len(found) == 0 {
			break
		}
		for _, pid := range found {
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed[pid] = true
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return len(killed)
}

// applying says whether Terraform itself is among a run's processes, and applies.
func applying(mark, binary string) bool {
	for _, pid := range marked(mark) {
		raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		args := bytes.Split(raw, []byte{0})
		if err == nil && len(args) > 1 && string(args[0]) == binary && string(args[1]) == "apply" {
			return true
		}
	}
	return false
}

// marked are the processes with a mark in their environment. It finds none where
// there is no /proc.
func marked(mark string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil || mark == "" {
		return nil
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil {
			continue // another's, or it has ended
		}
		for kv := range bytes.SplitSeq(environ, []byte{0}) {
			if bytes.HasPrefix(kv, []byte(markVariable+"=")) && bytes.Contains(kv, []byte(mark)) {
				out = append(out, pid)
				break
			}
		}
	}
	return out
}

// selected is the workspace that a directory is in.
func (d *Directory) selected() string {
	data := os.Getenv("TF_DATA_DIR")
	if data == "" {
		data = ".terraform"
	}
	if !filepath.IsAbs(data) {
		data = filepath.Join(d.cfg.Dir, data)
	}
	f, err := os.Open(filepath.Join(data, "environment"))
	if err != nil {
		return DefaultWorkspace
	}
	defer f.Close()
	line, _ := bufio.NewReader(f).ReadString('\n')
	if line = strings.TrimSpace(line); line != "" {
		return line
	}
	return DefaultWorkspace
}
