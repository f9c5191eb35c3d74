package agent

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

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
	f, err := os.Open(c.LogFile(r.PathValue("id"), task, kind))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, codef(404, "log entry for task %q and log type %q not found", task, kind)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	follow, plain := q.Get("follow") == "true", q.Get("plain") == "true"
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	buf := make([]byte, 64<<10)
	for offset := int64(0); ; {
		changed := a.cfg.Server.Store().Changed()
		n, err := f.Read(buf)
		offset += int64(n)
		if n > 0 {
			if sendLog(w, buf[:n], offset, filepath.Base(f.Name()), plain) != nil || out.Flush() != nil {
				return nil, nil
			}
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) || !follow {
			return nil, nil
		}
		select {
		case <-r.Context().Done():
			return nil, nil
		case <-changed:
		}
	}
}

func sendLog(w io.Writer, data []byte, offset int64, name string, plain bool) error {
	if plain {
		_, err := w.Write(data)
		return err
	}
	return json.NewEncoder(w).Encode(&api.StreamFrame{Offset: offset, Data: data, File: name})
}

// cat sends a file of an allocation.
func (a *Agent) cat(w http.ResponseWriter, r *http.Request) (any, error) {
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
	defer f.Close()
	_, _ = io.Copy(w, f)
	return nil, nil
}
