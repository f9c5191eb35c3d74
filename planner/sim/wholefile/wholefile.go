// Package wholefile writes files whose names only ever stand for all of them: what an
// interrupt, a full disk or a fault leaves behind is never taken for a result.
package wholefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ending is behind the name of a file that is not whole yet.
const ending = ".part"

// File is a file that is being written.
type File struct {
	*os.File
	name string
	// direct: what has the name is no file on a disk, such as a pipe, and is written to
	// as it is.
	direct bool
}

// Create begins a file. One that has its name stays as it is until Done.
func Create(name string) (*File, error) {
	f := File{name: name}
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return nil, &fs.PathError{Op: "create", Path: name, Err: errors.New("it is a directory")}
	case err == nil && !info.Mode().IsRegular():
		f.direct = true
		f.File, err = os.OpenFile(name, os.O_WRONLY, 0)
	default:
		f.File, err = os.Create(name + ending)
	}
	if err != nil {
		return nil, err
	}
	return &f, nil
}

// Done closes it and gives it its name.
func (f *File) Done() error {
	err := f.Close()
	if f.direct {
		return err
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.name+ending))
	}
	return os.Rename(f.name+ending, f.name)
}

// Drop closes it and leaves nothing of it.
func (f *File) Drop() error {
	err := f.Close()
	if f.direct {
		return err
	}
	return errors.Join(err, os.Remove(f.name+ending))
}

// Write writes a file at once.
func Write(name string, data []byte) error {
	f, err := Create(name)
	if err != nil {
		return err
	}
	if _, err := f.File.Write(data); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), f.Drop())
	}
	return f.Done()
}
