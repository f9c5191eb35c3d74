package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/hashicorp/nomad/api"
)

// forward sends a request on to another region's servers, which answer it as if
// it had been sent to them: tokens are theirs to judge, and indexes are theirs.
func (a *Agent) forward(w http.ResponseWriter, r *http.Request, region string) {
	to, ok := a.cfg.Forward(region)
	if !ok {
		writeError(w, codef(http.StatusInternalServerError, "No path to region"))
		return
	}
	to.ServeHTTP(w, r)
}

// regionFor is where a job goes whose request names no region in its query, as
// Nomad settles it: the request's, then the job's, and "global" is nobody's.
func (a *Agent) regionFor(r *http.Request, write api.WriteRequest, job *api.Job) string {
	region := write.Region
	if region == "" && r.URL.Query().Get("region") == "" {
		region = deref(job.Region)
	}
	if region == "" || region == api.GlobalRegion {
		return a.cfg.Region
	}
	return region
}

// forwardBody is forward for a request whose body was read already.
func (a *Agent) forwardBody(w http.ResponseWriter, r *http.Request, region string, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	on := r.Clone(r.Context())
	on.Body, on.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	q := on.URL.Query()
	q.Set("region", region)
	on.URL.RawQuery = q.Encode()
	a.forward(w, on, region)
	return nil
}
