package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxLine is how long a line may be, in bytes.
const maxLine = 1 << 20

// errLong is a line that is longer.
var errLong = fmt.Errorf("the line is longer than %d bytes", maxLine)

// lines reads a text line by line and cuts each into its columns. A row never goes on
// over the end of its line, so that a quote that nobody closes costs its own row and
// no other one.
type lines struct {
	in    *bufio.Reader
	comma rune
	// quotes says that a column may stand in quotes ("), as in CSV. Slurm writes names
	// with a quote in them as they are.
	quotes bool
	number int
	// opened is the last line with a quote that it did not close; 0: there is none, or
	// a later line has closed it.
	opened int
	long   []byte
	values []string
}

func newLines(r io.Reader, comma rune) *lines {
	return &lines{in: bufio.NewReaderSize(r, 1<<16), comma: comma, quotes: comma == ','}
}

// next reads the columns of the next line that is not blank. They are good until the
// next call. A row that cannot be cut is an error that is not of errRead.
func (l *lines) next() ([]string, error) {
	for {
		line, err := l.line()
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(line) != "" {
			return l.cut(line)
		}
	}
}

// line reads one line, without its end.
func (l *lines) line() (string, error) {
	l.number++
	l.long = l.long[:0]
	tooLong := false
	for {
		part, err := l.in.ReadSlice('\n')
		if len(l.long)+len(part) > maxLine {
			tooLong = true
		}
		more := errors.Is(err, bufio.ErrBufferFull)
		switch {
		case err != nil && !more && !errors.Is(err, io.EOF):
			return "", fmt.Errorf("%w: %w", errRead, err)
		case errors.Is(err, io.EOF) && len(part) == 0 && len(l.long) == 0 && !tooLong:
			return "", io.EOF
		}
		if more || len(l.long) > 0 {
			if !tooLong {
				l.long = append(l.long, part...)
			}
			part = l.long
		}
		switch {
		case more:
		case tooLong:
			return "", errLong
		default:
			return strings.TrimSuffix(strings.TrimSuffix(string(part), "\n"), "\r"), nil
		}
	}
}

// cut cuts a line into columns. A quote that does not stand at a column's beginning is
// text like any other, and so is one in a column in quotes that no comma follows.
func (l *lines) cut(line string) ([]string, error) {
	l.values = l.values[:0]
	for {
		if l.quotes && strings.HasPrefix(line, `"`) {
			value, rest, more, closed := l.quoted(line[1:])
			if !closed {
				l.opened = l.number
				return nil, fmt.Errorf(`column %d begins with a quote (") that is not closed on its line`, len(l.values)+1)
			}
			l.values = append(l.values, value)
			if !more {
				return l.values, nil
			}
			line = rest
			continue
		}
		value, rest, more := strings.Cut(line, string(l.comma))
		if l.opened > 0 && strings.HasSuffix(value, `"`) {
			err := fmt.Errorf(`column %d closes the quote (") of line %d`, len(l.values)+1, l.opened)
			l.opened = 0
			return nil, err
		}
		l.values = append(l.values, value)
		if !more {
			return l.values, nil
		}
		line = rest
	}
}

// quoted reads a column behind its first quote, and says whether another column
// follows; two quotes are one.
func (l *lines) quoted(line string) (value, rest string, more, closed bool) {
	var text strings.Builder
	for {
		at := strings.IndexByte(line, '"')
		if at < 0 {
			return "", "", false, false
		}
		text.WriteString(line[:at])
		switch line = line[at+1:]; {
		case line == "":
			return text.String(), "", false, true
		case rune(line[0]) == l.comma:
			return text.String(), line[1:], true, true
		case line[0] == '"':
			line = line[1:]
		}
		text.WriteByte('"')
	}
}
