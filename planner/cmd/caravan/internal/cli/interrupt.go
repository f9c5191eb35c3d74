package cli

import (
	"context"
	"io"
	"os"
)

// interruptible is a file on a disk whose reading ends with a context: a trace of ten
// million rows takes minutes.
type interruptible struct {
	*os.File
	ctx context.Context
}

// Read implements io.Reader.
func (f *interruptible) Read(p []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

// ReadAt implements io.ReaderAt.
func (f *interruptible) ReadAt(p []byte, at int64) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, at)
}

// unblocked reads what may keep its reader waiting, such as a pipe or a terminal: the wait
// ends with the context too.
func unblocked(ctx context.Context, in io.Reader) io.ReadCloser {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) }) // it never fails
	go func() {
		_, err := io.Copy(w, in)
		_ = w.CloseWithError(err) // nor here
	}()
	return r
}
