package trace

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// errRead marks what ends a reading, whatever comes after it.
var errRead = errors.New("cannot be read")

// table reads rows by the names of their columns.
type table struct {
	lines *lines
	names map[string]int
	row   row
	// width is how many columns there are.
	width int
}

// row is one of them. Its values are good until the next.
type row struct {
	names  map[string]int
	values []string
}

// newTable reads the header and looks for the columns that must be there, or what may
// stand in their place. bare: there is no header, and the columns have these names in
// this order.
func newTable(r io.Reader, comma rune, columns []string, instead map[string][]string, bare bool) (*table, error) {
	t := &table{lines: newLines(r, comma), names: map[string]int{}}
	header := columns
	if !bare {
		read, err := t.lines.next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: empty: want a header with the columns %s", ErrTrace, strings.Join(columns, ", "))
		}
		if err != nil {
			return nil, fmt.Errorf("%w: read header: %w", ErrTrace, err)
		}
		header = read
		if len(read) > 0 && (strings.HasPrefix(read[0], "\xff\xfe") || strings.HasPrefix(read[0], "\xfe\xff")) {
			return nil, fmt.Errorf("%w: the text is UTF-16: want UTF-8", ErrTrace)
		}
	}
	for i, name := range header {
		name = strings.TrimSpace(name)
		if _, twice := t.names[name]; !twice {
			t.names[name] = i
		} else if name != "" {
			return nil, fmt.Errorf("%w: column %s is there twice: want it once", ErrTrace, name)
		}
	}
	t.width = len(header)
	var missing []string
	for _, name := range columns {
		all := append([]string{name}, instead[name]...)
		if !slices.ContainsFunc(all, func(name string) bool { _, there := t.names[name]; return there }) {
			missing = append(missing, strings.Join(all, " or "))
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%w: columns %s are missing; there are, divided by %q: %s", ErrTrace, strings.Join(missing, ", "), comma, readable(header))
	}
	t.row.names = t.names
	return t, nil
}

// maxHeader is how much of a header that is none is told.
const maxHeader = 300

// readable are the columns that there are as a person can read them, whatever the file
// is.
func readable(header []string) string {
	text := strconv.QuoteToGraphic(strings.Join(header, ", "))
	text = strings.ReplaceAll(text[1:len(text)-1], `\"`, `"`)
	if len(text) > maxHeader {
		text = text[:maxHeader] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// next reads the next row. An error that wraps errRead is the last one.
func (t *table) next() (*row, error) {
	values, err := t.lines.next()
	if err != nil {
		return nil, err
	}
	for i := t.width; i < len(values); i++ {
		if strings.TrimSpace(values[i]) != "" {
			return nil, fmt.Errorf("%d columns: want the %d of the header at most", len(values), t.width)
		}
	}
	t.row.values = values
	return &t.row, nil
}

func (t *table) line() int { return t.lines.number }

// has reports whether a column is there and holds something.
func (r *row) has(name string) bool { return r.text(name) != "" }

// text is a column's value, "" if it is not there.
func (r *row) text(name string) string {
	at, ok := r.names[name]
	if !ok || at >= len(r.values) {
		return ""
	}
	return strings.TrimSpace(r.values[at])
}

// number reads a column. The value 0 stands for one that is empty and may be.
func (r *row) number(name string, faults *[]error) float64 {
	text := r.text(name)
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		*faults = append(*faults, fmt.Errorf("%s %q: want a number", name, text))
	}
	return n
}

// whole reads a column that counts something.
func (r *row) whole(name string, faults *[]error) int {
	n := r.number(name, faults)
	if n != float64(int(n)) {
		*faults = append(*faults, fmt.Errorf("%s %g: want a whole number", name, n))
	}
	return int(n)
}

// optional is number where the column may be missing or empty.
func (r *row) optional(name string, faults *[]error) float64 {
	if !r.has(name) {
		return 0
	}
	return r.number(name, faults)
}
