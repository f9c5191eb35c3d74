package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/client"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// host finds the client that has an allocation's files.
func (a *Agent) host(id string) (*client.Client, error) {
	var node string
	a.cfg.Server.Store().View(func(v *state.View) {
		if al := v.Alloc(id); al != nil {
			node = al.NodeID
		}
	})
	if c := a.cfg.Client(node); c != nil {
		return c, nil
	}
	return nil, codef(404, "Unknown allocation %q", id)
}

// logs sends what a task wrote; following it, until the request ends.
func (a *Agent) logs(w http.ResponseWriter, r *http.Request) (any, error) {
	q := r.URL.Query()
	c, err := a.host(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	kind := q.Get("type")
	if kind != "stdout" && kind != "stderr" {
		return nil, codef(400, "log type must be stdout or stderr")
	}
	task := q.Get("task")
	if task == "" || task != filepath.Base(task) {
		return nil, codef(400, "must provide task name")
	}
	base := c.LogFile(r.PathValue("id"), task, kind)
	index := oldestLog(base)
	f, err := os.Open(logPart(base, index))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, codef(404, "log entry for task %q and log type %q not found", task, kind)
	}
	if err != nil {
		return nil, err
	}
	defer func() { f.Close() }()
	follow, plain := q.Get("follow") == "true", q.Get("plain") == "true"
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	buf := make([]byte, 64<<10)
	for offset := int64(0); ; {
		// Looked for before the read, so that what comes last is not missed.
		_, missing := os.Stat(logPart(base, index+1))
		n, err := f.Read(buf)
		offset += int64(n)
		if n > 0 {
			if sendLog(w, buf[:n], offset, filepath.Base(f.Name()), plain) != nil || out.Flush() != nil {
				return nil, nil
			}
			continue
		}
		if missing == nil {
			next, err := os.Open(logPart(base, index+1))
			if err != nil {
				return nil, nil
			}
			f.Close()
			f, index, offset = next, index+1, 0
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) || !follow {
			return nil, nil
		}
		// As in Nomad, files are looked at from time to time.
		select {
		case <-r.Context().Done():
			return nil, nil
		case <-time.After(followInterval):
		}
	}
}

// followInterval is how often a log that is followed is looked at.
const followInterval = 50 * time.Millisecond

func logPart(base string, index int) string { return fmt.Sprintf("%s.%d", base, index) }

// oldestLog is the lowest number that is left of a log's files, 0 without any.
func oldestLog(base string) int {
	files, err := filepath.Glob(base + ".*")
	if err != nil {
		return 0
	}
	oldest := -1
	for _, f := range files {
		n, err := strconv.Atoi(strings.TrimPrefix(f, base+"."))
		if err == nil && (oldest < 0 || n < oldest) {
			oldest = n
		}
	}
	return max(oldest, 0)
}

func sendLog(w io.Writer, data []byte, offset int64, name string, plain bool) error {
	if plain {
		_, err := w.Write(data)
		return err
	}
	return json.NewEncoder(w).Encode(&api.StreamFrame{Offset: offset, Data: data, File: name})
}

// open opens a file or folder of an allocation.
func (a *Agent) open(r *http.Request) (*os.File, error) {
	c, err := a.host(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(c.AllocDir(r.PathValue("id")))
	if err != nil {
		return nil, codef(404, "%v", err)
	}
	defer root.Close()
	f, err := root.Open(filepath.Clean("./" + r.URL.Query().Get("path")))
	if err != nil {
		return nil, codef(404, "%v", err)
	}
	return f, nil
}

// cat sends a file of an allocation.
func (a *Agent) cat(w http.ResponseWriter, r *http.Request) (any, error) {
	f, err := a.open(r)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_, _ = io.Copy(w, f)
	return nil, nil
}

func (a *Agent) stat(_ http.ResponseWriter, r *http.Request) (any, error) {
	f, err := a.open(r)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, codef(404, "%v", err)
	}
	return fileInfo(info), nil
}

// list tells what is in a folder of an allocation.
func (a *Agent) list(_ http.ResponseWriter, r *http.Request) (any, error) {
	f, err := a.open(r)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	infos, err := f.Readdir(-1)
	if err != nil {
		return nil, codef(500, "%v", err)
	}
	out := []*api.AllocFileInfo{}
	for _, info := range infos {
		out = append(out, fileInfo(info))
	}
	slices.SortFunc(out, func(x, y *api.AllocFileInfo) int { return strings.Compare(x.Name, y.Name) })
	return out, nil
}

func fileInfo(i os.FileInfo) *api.AllocFileInfo {
	return &api.AllocFileInfo{Name: i.Name(), IsDir: i.IsDir(), Size: i.Size(), FileMode: i.Mode().String(), ModTime: i.ModTime()}
}
