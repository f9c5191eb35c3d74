package supervisor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// maxEvent bounds a line of the events' file.
const maxEvent = 64 << 10

// readEvents reads the events after a Sequence from disk. A last line that was
// cut off by a crash is left out; so is any other that cannot be read.
func readEvents(path string, since int64) ([]Event, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer func() { _ = f.Close() }()
	var out []Event
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 0, 4096), maxEvent)
	for lines.Scan() {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Sequence > since {
			out = append(out, e)
		}
	}
	if err := lines.Err(); err != nil {
		return out, fmt.Errorf("read events: %w", err)
	}
	return out, nil
}
