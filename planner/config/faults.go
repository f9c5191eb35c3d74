package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// fault is one thing that is wrong, and where it stands.
type fault struct {
	// file counts the files in the order in which they were read, line the lines
	// from 1; 0 is the file as a whole.
	file, line int
	text       string
}

// faults are those of one file and of the files that it names.
type faults struct {
	list  []fault
	files int
}

// err joins the faults in the order of the files and of their lines.
func (f *faults) err() error {
	slices.SortStableFunc(f.list, func(a, b fault) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	var out []error
	for i := range f.list {
		out = append(out, errors.New(f.list[i].text))
	}
	return errors.Join(out...)
}

// outside is the file of faults that stand in none: they come last.
const outside = 1 << 30

// loader gathers faults on the way.
type loader struct {
	path   string
	src    []byte
	faults *faults
	// file is the number of the file in faults.
	file int
	// lines are where the file has a key "block.key", or a block. A label is
	// written in brackets, "level[rack].meta"; [#2] is the third block of its type.
	lines map[string]int
	// unread are keys and blocks whose values cannot be read. What counts instead of
	// them is nobody's will, so that nothing more is said of them.
	unread       map[string]bool
	topologyFile string
	queuesFile   string
	// federated: there is a federation block.
	federated bool
	poolsFile string
	// fromEnv maps a key to the environment variable that set it.
	fromEnv map[string]string
}

func newLoader(path string, src []byte, all *faults) *loader {
	l := &loader{path: path, src: src, faults: all, file: all.files, lines: map[string]int{}, unread: map[string]bool{}}
	all.files++
	return l
}

// diags keeps HCL's own findings, in the form FILE:LINE: text.
func (l *loader) diags(diags hcl.Diagnostics) {
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		text, line := d.Summary, 0
		if d.Detail != "" {
			text += ": " + d.Detail
		}
		if d.Subject != nil {
			line = d.Subject.Start.Line
		}
		l.add(line, text)
	}
}

// add keeps a fault of a line, or of the file for 0.
func (l *loader) add(line int, text string) {
	at := l.path
	if line > 0 {
		at = fmt.Sprintf("%s:%d", l.path, line)
	}
	l.faults.list = append(l.faults.list, fault{l.file, line, oneLine(at + ": " + text)})
}

// oneLine takes the ends of lines out of what HCL says, or what a name holds.
func oneLine(text string) string { return strings.Join(strings.FieldsFunc(text, isBreak), " ") }

func isBreak(r rune) bool { return r == '\n' || r == '\r' }

// join takes over the faults of a file that was read by others; they stay together.
func (l *loader) join(err error) {
	l.faults.list = append(l.faults.list, fault{file: l.faults.files, text: err.Error()})
	l.faults.files++
}

// fault adds a fault of the key at that path, written "block.key". others are keys
// that the fault is about as well: while one of them cannot be read, it is not told.
func (l *loader) fault(key string, value any, allowed string, others ...string) {
	l.faultText(key, fmt.Sprintf("%s is %s: %s", key, quote(value), allowed), others...)
}

// refuse is fault for a value that cannot be read, so that nothing else counts.
func (l *loader) refuse(key string, value any, allowed string) {
	l.fault(key, value, allowed)
	l.unread[key] = true
}

// faultText adds a fault of the key at that path in words of its own.
func (l *loader) faultText(key, text string, others ...string) {
	if slices.ContainsFunc(others, l.hidden) {
		return
	}
	if v, ok := l.fromEnv[key]; ok {
		l.faults.list = append(l.faults.list, fault{file: outside, text: "environment variable " + v + ": " + text})
		return
	}
	if l.hidden(key) {
		return
	}
	line := l.line(key)
	if line == 0 && l.path == "" {
		l.faults.list = append(l.faults.list, fault{file: outside, text: "default: " + text})
		return
	}
	l.add(line, text)
}

// hidden reports whether a key, or a block that it is in, cannot be read.
func (l *loader) hidden(key string) bool {
	for ; key != ""; key = outer(key) {
		if l.unread[key] {
			return true
		}
	}
	return false
}

// line is where a key stands, or the innermost block on the way to it; 0 when the
// file has neither.
func (l *loader) line(key string) int {
	for ; key != ""; key = outer(key) {
		if line, ok := l.lines[key]; ok {
			return line
		}
	}
	return 0
}

// has reports whether the file has a key itself.
func (l *loader) has(key string) bool { return l.lines[key] > 0 }

// outer is what a key is in. A label may have dots: then some of what this finds on
// the way out is no block, and found nowhere.
func outer(key string) string { return key[:max(0, strings.LastIndexAny(key, ".["))] }

func quote(v any) string {
	if s, ok := v.(string); ok {
		return strconv.Quote(s)
	}
	return fmt.Sprint(v)
}
