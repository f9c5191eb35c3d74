package httpapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// maxRequest bounds a request's body. Nomad itself takes jobs up to 30 MiB.
const maxRequest = 30 << 20

func decode(r *http.Request, into any) error { return decodeMax(r, into, maxRequest) }

func decodeMax(r *http.Request, into any, limit int) error {
	b, err := io.ReadAll(io.LimitReader(r.Body, int64(limit)+1))
	switch {
	case err != nil:
		return &Error{Status: http.StatusBadRequest, Message: "the request's body cannot be read: " + err.Error()}
	case len(b) > limit:
		return &Error{Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the request's body has more than %d bytes", limit)}
	}
	if err := json.Unmarshal(b, into); err != nil {
		return &Error{Status: http.StatusBadRequest, Message: "the request's body is not the JSON expected: " + err.Error()}
	}
	return nil
}

func (s *server) plan(r *http.Request) (any, error) {
	var body struct{ Job *api.Job }
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	if body.Job == nil || body.Job.ID == nil || *body.Job.ID == "" {
		return nil, &Error{Status: http.StatusBadRequest, Message: "the request has no job", Do: `send {"Job": …} as to Nomad's /v1/jobs`}
	}
	namespace := api.DefaultNamespace
	if body.Job.Namespace != nil && *body.Job.Namespace != "" {
		namespace = *body.Job.Namespace
	}
	if err := s.authorize(r, RightReadJob, namespace); err != nil {
		return nil, err
	}
	if _, err := s.view(r); err != nil {
		return nil, err
	}
	return s.b.Plan(r.Context(), body.Job)
}

func (s *server) release(r *http.Request) (any, error) {
	var req ReleaseRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	req.Job = strings.TrimSpace(req.Job)
	switch {
	case req.All == (req.Job != ""):
		return nil, &Error{Status: http.StatusBadRequest, Message: "name one job, or all", Do: `send {"namespace": …, "job": …} or {"all": true}`}
	case req.Job != "" && req.Namespace == "":
		req.Namespace = api.DefaultNamespace
	}
	right, namespace := RightReadJob, req.Namespace
	if req.All {
		right, namespace = RightManage, "*"
	}
	if err := s.authorize(r, right, namespace); err != nil {
		return nil, err
	}
	if _, err := s.view(r); err != nil {
		return nil, err
	}
	return s.b.Release(r.Context(), r.Header.Get(TokenHeader), req)
}
