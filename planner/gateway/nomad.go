package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// maxAnswer bounds what is read of Nomad's answer to a registration or plan.
const maxAnswer = 64 << 20

// reply is an answer of Nomad's, read whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (a *reply) ok() bool { return a.status >= 200 && a.status < 300 }

// indexConflict says whether Nomad refused because the job was not at the index
// that was to be enforced.
func (a *reply) indexConflict() bool {
	return a.status == http.StatusInternalServerError && bytes.Contains(a.body, []byte(api.RegisterEnforceIndexErrPrefix))
}

// connectionHeaders belong to one connection and are not passed on; the body's
// own are set anew, because the body is.
var connectionHeaders = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate",
	"Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Content-Length", "Content-Encoding", "Content-Md5", "Digest", "Expect", "Accept-Encoding",
}

func withoutConnection(h http.Header) http.Header {
	out := h.Clone()
	for _, line := range h.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			out.Del(textproto.TrimString(name))
		}
	}
	for _, name := range connectionHeaders {
		out.Del(name)
	}
	return out
}

// send sends a request in the user's name: with the headers of r, so with the
// user's token, and the query of r, so to the same namespace and region. path is
// escaped; "" is r's own. A nil body sends none.
func (g *Gateway) send(ctx context.Context, r *http.Request, method, path string, body any) (*reply, *problem) {
	if body == nil {
		return g.sendBody(ctx, r, method, path, nil)
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "The job cannot be encoded: %v.", err)
	}
	return g.sendBody(ctx, r, method, path, data)
}

// sendBody is send with a body that is encoded already.
func (g *Gateway) sendBody(ctx context.Context, r *http.Request, method, path string, body []byte) (*reply, *problem) {
	if path == "" {
		path = r.URL.EscapedPath()
	}
	target := strings.TrimSuffix(baseURL(g.cfg.Nomad).String(), "/") + path
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	var content io.Reader
	if len(body) > 0 {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, content)
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "Caravan cannot send this request on to Nomad: %v.", err)
	}
	req.Header = withoutConnection(r.Header)
	req.Host = r.Host
	resp, err := g.http.Do(req)
	if err != nil {
		return nil, unreachable(g.cfg.Nomad, err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, unreachable(g.cfg.Nomad, fmt.Errorf("read answer: %w", err))
	}
	return &reply{status: resp.StatusCode, header: resp.Header, body: data}, nil
}

// relay gives Nomad's answer to the client as it is.
func relay(w http.ResponseWriter, a *reply) {
	for name, values := range withoutConnection(a.header) {
		w.Header()[name] = slices.Clone(values)
	}
	w.WriteHeader(a.status)
	// The client may be gone: there is nobody left to tell.
	_, _ = w.Write(a.body)
}

// pass sends a request on whose body was already read.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request, body []byte) {
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.TransferEncoding = nil
	Pass(g.proxy, w, r)
}

// submitterOf names who sends a request, as far as Nomad knows the token; "" is
// nobody known. It is a note in the record and decides nothing.
func (g *Gateway) submitterOf(ctx context.Context, r *http.Request) string {
	who, _ := g.callerOf(ctx, r)
	return who
}

// aclsDisabled is the accessor of the token that everybody has where ACLs are off.
const aclsDisabled = "acls-disabled"

// callerOf is submitterOf, and says whether the token counts in every region: one
// that is local to a region has no rights in the others.
func (g *Gateway) callerOf(ctx context.Context, r *http.Request) (who string, everywhere bool) {
	if r.Header.Get("X-Nomad-Token") == "" && r.Header.Get("Authorization") == "" {
		return "", true // what nobody may is the same everywhere
	}
	a, p := g.send(ctx, r, http.MethodGet, "/v1/acl/token/self", nil)
	if p != nil || !a.ok() {
		return "", p == nil && a.status == http.StatusBadRequest // ACLs are off
	}
	var token struct {
		AccessorID, Name string
		Global           bool
	}
	if err := json.Unmarshal(a.body, &token); err != nil || token.AccessorID == "" {
		return "", false
	}
	who = token.AccessorID
	if token.Name != "" {
		who = fmt.Sprintf("%s (%s)", token.Name, token.AccessorID)
	}
	return who, token.Global || token.AccessorID == aclsDisabled
}
