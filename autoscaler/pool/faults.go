package pool

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// loader gathers faults on the way.
type loader struct {
	path   string
	src    []byte
	body   *hclsyntax.Body
	faults []error
	// block counts the pools, or the data sets, at what is being read.
	block int
	// unread are the keys whose values cannot be read, and blocks. What they are
	// instead is not the operator's will, so that nothing more is said of them.
	unread map[place]bool
	// meant are keys and blocks that seem to be there with a slip in their names.
	meant map[place]bool
}

// place is a key "pool[NAME].block.key" of one of the blocks with that name.
type place struct {
	block int
	key   string
}

func (l *loader) at(key string) place { return place{l.block, key} }

// maxValue bounds what a fault quotes of the file.
const maxValue = 60

// diags keeps what HCL has found, with key and value where it is about a value.
func (l *loader) diags(diags hcl.Diagnostics) {
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		text, at := d.Summary, l.path
		if d.Detail != "" {
			text += ": " + d.Detail
		}
		if d.Subject != nil {
			at = fmt.Sprintf("%s:%d", d.Subject.Filename, d.Subject.Start.Line)
			where, value := l.find(d.Subject.Start.Byte)
			if value != nil && l.unread[where] {
				continue // the second finding follows from the first
			}
			if quoted := l.quote(value); quoted != "" {
				text = fmt.Sprintf("%s is %s: %s", where.key, quoted, text)
				l.unread[where] = true
			}
			l.learn(d, where)
		}
		l.faults = append(l.faults, fmt.Errorf("%s: %s", at, text))
	}
}

// quote is a value as it is in the file, "" if there is none.
func (l *loader) quote(value hclsyntax.Expression) string {
	if value == nil {
		return ""
	}
	r := value.Range()
	quoted := strings.Join(strings.Fields(string(r.SliceBytes(l.src))), " ")
	if len(quoted) > maxValue {
		quoted = strings.ToValidUTF8(quoted[:maxValue], "") + "…"
	}
	return quoted
}

// learn keeps what else a finding of HCL explains: a key that is missing since it is
// misspelt, or a block that is not read since it is there twice.
func (l *loader) learn(d *hcl.Diagnostic, where place) {
	if strings.HasPrefix(d.Summary, "Duplicate ") && strings.HasSuffix(d.Summary, " block") {
		l.unread[where] = true
		return
	}
	if d.Summary == "Unsupported block type" {
		where.key = where.key[:max(0, strings.LastIndex(where.key, "."))]
	}
	for _, words := range []string{"Did you mean \"", "define a block of type \""} {
		if _, after, found := strings.Cut(d.Detail, words); found {
			name, _, _ := strings.Cut(after, `"`)
			l.meant[place{where.block, join(where.key, name)}] = true
		}
	}
}

// hides says that a fault follows from another that has been told.
func (l *loader) hides(f fault) bool {
	_, found := l.line(f.block, f.key)
	for key := f.key; key != ""; key = key[:max(0, strings.LastIndex(key, "."))] {
		at := place{f.block, key}
		if l.unread[at] || !found && l.meant[at] {
			return true
		}
	}
	return false
}

func (l *loader) fault(key string, value any, want string) {
	at := l.path
	if line, _ := l.line(l.block, key); line > 0 {
		at = fmt.Sprintf("%s:%d", l.path, line)
	}
	if s, ok := value.(string); ok {
		value = strconv.Quote(s)
	}
	l.faults = append(l.faults, fmt.Errorf("%s: %s is %v: %s", at, key, value, want))
}

// line is where a key "pool[NAME].block.key" stands in the block of that number, or
// the innermost block on the way to it, and whether the key itself was found.
func (l *loader) line(block int, key string) (line int, found bool) {
	body := l.body
	for body != nil {
		name, rest, more := cutKey(key)
		name, _, labelled := strings.Cut(name, "[")
		if attr, ok := body.Attributes[name]; ok && !more {
			return attr.SrcRange.Start.Line, true
		}
		number := 0
		if labelled {
			number = block
		}
		var in *hclsyntax.Block
		for _, b := range body.Blocks {
			if b.Type != name || labelled && len(b.Labels) != 1 {
				continue
			}
			if number == 0 {
				in = b
				break
			}
			number--
		}
		if in == nil {
			return line, false
		}
		line = in.TypeRange.Start.Line
		if !more {
			return line, true
		}
		body, key = in.Body, rest
	}
	return line, false
}

// cutKey is the first part of a key, and the rest. A name in brackets may have dots.
func cutKey(key string) (first, rest string, more bool) {
	if open := strings.IndexAny(key, ".["); open >= 0 && key[open] == '[' {
		if end := strings.LastIndex(key, "]"); end >= 0 {
			return key[:end+1], strings.TrimPrefix(key[end+1:], "."), end+1 < len(key)
		}
	}
	return strings.Cut(key, ".")
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// find is the key whose value stands at a place of the file, with that value, or the
// innermost block around it without one.
func (l *loader) find(at int) (where place, value hclsyntax.Expression) {
	body := l.body
	for body != nil {
		for name, attr := range body.Attributes {
			if r := attr.Expr.Range(); at >= r.Start.Byte && at < max(r.End.Byte, r.Start.Byte+1) {
				where.key = join(where.key, name)
				return where, attr.Expr
			}
		}
		numbers, outer := map[string]int{}, where.key == ""
		next := (*hclsyntax.Body)(nil)
		for _, b := range body.Blocks {
			if r := b.Range(); at >= r.Start.Byte && at < b.CloseBraceRange.End.Byte {
				name := b.Type
				if outer && len(b.Labels) == 1 {
					name += "[" + b.Labels[0] + "]"
					where.block = numbers[b.Type]
				}
				where.key, next = join(where.key, name), b.Body
				break
			}
			if len(b.Labels) == 1 {
				numbers[b.Type]++
			}
		}
		body = next
	}
	return where, nil
}

// checkLevels are the faults of the levels that pools name.
func (f *File) checkLevels(level func(name string) string) []fault {
	c := &checker{}
	for i := range f.Pools {
		p := &f.Pools[i]
		c.block, c.at = i, "pool["+p.Name+"]"
		for _, name := range slices.Sorted(maps.Keys(p.Levels)) {
			if want := level(name); want != "" {
				c.add(".levels", name, want)
			}
		}
		if p.Near != "" {
			if want := level(p.Near); want != "" {
				c.add(".near", p.Near, want)
			}
		}
	}
	return c.faults
}
