package gateway

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// kind is what the gateway does with a request.
type kind int

const (
	// kindPass: the request goes to Nomad as it came.
	kindPass kind = iota
	// kindRegister: the body is a job to be registered.
	kindRegister
	// kindPlan: the body is a job to be planned.
	kindPlan
	// kindRevert: the body names a version of the job to go back to.
	kindRevert
	// kindScale: the body is a new count for one of the job's groups.
	kindScale
	// kindDispatch: the body is the input of a parameterized job.
	kindDispatch
	// kindJob, kindVersions, kindScaleStatus, kindSummary: what Nomad answers is
	// shown in the user's terms.
	kindJob
	kindVersions
	kindScaleStatus
	kindSummary
	// kindEvaluations, kindAlloc: of a gang that its user told to stop.
	kindEvaluations
	kindAlloc
	// kindAllocStop, kindAllocRestart: a member of a gang may be meant.
	kindAllocStop
	kindAllocRestart
	// kindDeployments, kindJobDeployment, kindDeployment, kindDeploymentAllocs:
	// an update that Caravan rolls may be meant; kindDeploymentChange may change
	// it.
	kindDeployments
	kindJobDeployment
	kindDeployment
	kindDeploymentAllocs
	kindDeploymentChange
	// kindRedirect: Nomad would redirect to the clean form of the path; so
	// does the gateway, and looks at the request when it comes back.
	kindRedirect
	// kindRefuse: the request could be read as a registration and could be read
	// as something else.
	kindRefuse
)

// aboutOne says whether a request is about one job or allocation that its path
// names, and has nothing in its body that could name another region.
func (k kind) aboutOne() bool {
	switch k {
	case kindJob, kindVersions, kindScaleStatus, kindSummary, kindEvaluations, kindAlloc, kindAllocStop, kindAllocRestart:
		return true
	}
	return false
}

// route is a classified request.
type route struct {
	kind kind
	// jobID is the job that the path names, "" for /v1/jobs; for an allocation's
	// kinds, the allocation, for a deployment's the deployment.
	jobID string
	// operation is what is done to a deployment.
	operation string
	// target is the clean form of the path, escaped, for kindRedirect.
	target string
	// why says what cannot be understood, for kindRefuse.
	why string
}

// overrides are headers by which some proxies and frameworks change a
// request's method. Nomad ignores them; a proxy between here and Nomad may not.
var overrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// subResources are the endings of paths below /v1/job/ that Nomad takes for
// something other than the job itself. The plan is among them.
var subResources = []string{
	"/evaluate", "/allocations", "/evaluations", "/periodic/force", "/plan",
	"/summary", "/dispatch", "/dispatch/payload", "/versions", "/revert",
	"/deployments", "/deployment", "/stable", "/scale", "/services",
	"/submission", "/actions", "/action", "/tag",
}

// classify decides what a request is by its method and path. Nomad's mux
// matches the escaped path segment by segment and its handlers read the decoded
// one; older muxes and other proxies clean or decode first. A path on which
// these readings disagree about a registration is refused.
func classify(r *http.Request) route {
	decoded := r.URL.Path
	if r.Method == http.MethodGet && override(r) == "" {
		return readView(decoded)
	}
	here := read(decoded)
	clean := read(path.Clean("/" + decoded))
	if here.kind == kindPass && clean.kind == kindPass {
		return here
	}
	if name := override(r); name != "" {
		return route{kind: kindRefuse, why: "the header " + name + " changes the method on the way"}
	}
	switch {
	case r.Method == http.MethodPost || r.Method == http.MethodPut:
	case strings.EqualFold(r.Method, http.MethodPost) || strings.EqualFold(r.Method, http.MethodPut):
		return route{kind: kindRefuse, why: "the method " + r.Method + " must be in capitals"}
	default:
		return route{kind: kindPass}
	}
	escaped := r.URL.EscapedPath()
	if target := cleanPath(escaped); target != escaped {
		return route{kind: kindRedirect, target: target}
	}
	if here.kind != clean.kind {
		return route{kind: kindRefuse, why: "the path " + escaped + " can be read in two ways"}
	}
	return here
}

// override is the header that asks for another method, "" if none does.
func override(r *http.Request) string {
	for _, name := range overrides {
		if r.Header.Get(name) != "" {
			return name
		}
	}
	return ""
}

// readView says what a decoded path is for a request that reads. Nothing is
// lost when one is not recognised: it is then answered in Nomad's terms.
func readView(p string) route {
	if id, ok := strings.CutPrefix(p, "/v1/allocation/"); ok && id != "" && !strings.Contains(id, "/") {
		return route{kind: kindAlloc, jobID: id}
	}
	if p == "/v1/deployments" {
		return route{kind: kindDeployments}
	}
	if id, ok := strings.CutPrefix(p, "/v1/deployment/"); ok {
		return readDeployment(id)
	}
	rest, ok := strings.CutPrefix(p, "/v1/job/")
	if !ok || rest == "" {
		return route{kind: kindPass}
	}
	for _, s := range subResources {
		id, ok := strings.CutSuffix(rest, s)
		if !ok {
			continue
		}
		switch s {
		case "/versions":
			return route{kind: kindVersions, jobID: id}
		case "/scale":
			return route{kind: kindScaleStatus, jobID: id}
		case "/summary":
			return route{kind: kindSummary, jobID: id}
		case "/deployments":
			return route{kind: kindDeployments, jobID: id}
		case "/deployment":
			return route{kind: kindJobDeployment, jobID: id}
		case "/evaluations":
			return route{kind: kindEvaluations, jobID: id}
		}
		return route{kind: kindPass}
	}
	return route{kind: kindJob, jobID: rest}
}

// read says what a decoded path is, as Nomad reads it, for a request that
// writes.
func read(p string) route {
	if p == "/v1/jobs" || p == "/v1/job" {
		return route{kind: kindRegister}
	}
	rest, ok := strings.CutPrefix(p, "/v1/job/")
	if !ok {
		return readAlloc(p)
	}
	for _, s := range subResources {
		id, ok := strings.CutSuffix(rest, s)
		if !ok {
			continue
		}
		switch s {
		case "/plan":
			return route{kind: kindPlan, jobID: id}
		case "/revert":
			return route{kind: kindRevert, jobID: id}
		case "/scale":
			return route{kind: kindScale, jobID: id}
		case "/dispatch":
			return route{kind: kindDispatch, jobID: id}
		}
		return route{kind: kindPass}
	}
	return route{kind: kindRegister, jobID: rest}
}

// The changes of a deployment, as its path names them.
const (
	opPromote = "promote"
	opFail    = "fail"
	opPause   = "pause"
	opHealth  = "allocation-health"
)

// readDeployment is what a request that reads is about, by what follows
// /v1/deployment/.
func readDeployment(rest string) route {
	if id, ok := strings.CutPrefix(rest, "allocations/"); ok && id != "" && !strings.Contains(id, "/") {
		return route{kind: kindDeploymentAllocs, jobID: id}
	}
	if rest == "" || strings.Contains(rest, "/") {
		return route{kind: kindPass}
	}
	return route{kind: kindDeployment, jobID: rest}
}

// readDeploymentChange finds the writes to a deployment that Caravan may roll.
func readDeploymentChange(p string) route {
	rest, ok := strings.CutPrefix(p, "/v1/deployment/")
	operation, id, found := strings.Cut(rest, "/")
	if !ok || !found || id == "" || strings.Contains(id, "/") {
		return route{kind: kindPass}
	}
	switch operation {
	case opPromote, opFail, opPause, opHealth:
		return route{kind: kindDeploymentChange, jobID: id, operation: operation}
	}
	return route{kind: kindPass}
}

// readAlloc finds the writes to one allocation that concern its whole gang.
func readAlloc(p string) route {
	if rest, ok := strings.CutPrefix(p, "/v1/allocation/"); ok {
		if id, ok := strings.CutSuffix(rest, "/stop"); ok && id != "" && !strings.Contains(id, "/") {
			return route{kind: kindAllocStop, jobID: id}
		}
	}
	if rest, ok := strings.CutPrefix(p, "/v1/client/allocation/"); ok {
		if id, ok := strings.CutSuffix(rest, "/restart"); ok && id != "" && !strings.Contains(id, "/") {
			return route{kind: kindAllocRestart, jobID: id}
		}
	}
	return readDeploymentChange(p)
}

// cleanPath is the form of an escaped path to which net/http's mux redirects: a
// leading slash, no "." and "..", no double slashes, a trailing slash kept.
func cleanPath(p string) string {
	clean := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

// redirect answers with the clean path, keeping method and body.
func redirect(w http.ResponseWriter, r *http.Request, target string) {
	u := url.URL{RawPath: target, RawQuery: r.URL.RawQuery}
	decoded, err := url.PathUnescape(target)
	if err != nil {
		refuse(w, http.StatusBadRequest, "Caravan cannot read the path %q: %v.", target, err)
		return
	}
	u.Path = decoded
	w.Header().Set("Location", u.String())
	w.WriteHeader(http.StatusTemporaryRedirect)
}
