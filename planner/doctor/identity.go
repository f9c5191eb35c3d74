package doctor

import (
	"net/http"
	"time"
)

// Trust is what a planner has found of the identities that members show it.
type Trust struct {
	Verified, Refused int
	// LastRefused is when the last one was refused, and Why.
	LastRefused time.Time
	Why         string
}

// recently is how long ago a refused identity is worth a warning.
const recently = time.Hour

// identities looks at what members prove with who they are: Nomad signs it, and
// the planner must be able to read the keys.
func (x *examination) identities() {
	const name = "identity"
	if x.Keys == nil {
		return
	}
	url, keys, err := x.Keys(x.ctx)
	var t Trust
	if x.Trust != nil {
		t = x.Trust()
	}
	switch {
	case err != nil && (statusOf(err) == http.StatusForbidden || statusOf(err) == http.StatusUnauthorized):
		x.fail(name, "let the planner read it: Nomad asks for no token there, so something in between does", "the keys of Nomad's servers, which members' identities are checked with, are refused at %s: %v", url, err)
	case err != nil && statusOf(err) == http.StatusNotFound:
		x.fail(name, "set nomad.address to an agent of Nomad 1.7 or newer, and see that a proxy before it passes this path on", "there are no keys at %s, so members' identities cannot be checked and no gang starts: %v", url, err)
	case err != nil:
		x.fail(name, "see that the planner reaches this address, and what answers there", "the keys of Nomad's servers cannot be read at %s, so members' identities cannot be checked and no gang starts: %v", url, err)
	case keys == 0:
		x.fail(name, "see `nomad operator root keyring list`, and rotate the keys if there is none", "%s shows no key that can be used, so members' identities cannot be checked and no gang starts", url)
	case t.Refused > 0 && x.Now().Sub(t.LastRefused) < recently:
		x.warn(name, "if it says so of all members, see that nomad.address is of the cluster that they run in, and that the clocks agree; if of one, restart its task",
			"%d identities were refused and %d verified since the planner started; the last one was refused at %s: %s", t.Refused, t.Verified, t.LastRefused.UTC().Format(time.RFC3339), t.Why)
	case x.Trust != nil:
		x.ok(name, "%s shows %s; %d identities of members were verified since the planner started", url, count(keys, "key"), t.Verified)
	default:
		x.ok(name, "%s shows %s to check members' identities with", url, count(keys, "key"))
	}
}
