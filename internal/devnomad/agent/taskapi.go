package agent

import (
	"net/http"
)

// ForTask returns the API on a task's socket: the agent's, for those who show a
// workload identity or a token. An agent that is cut off cannot ask anybody
// whether it is a good one.
func ForTask(servers *Agent, agent http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secret := secretOf(r)
		if secret == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if servers.cfg.Server.KnowsIdentity(secret) {
			// What an identity may do of itself is what everybody may; the stand-in
			// has no policies for workloads.
			r.Header.Del("X-Nomad-Token")
			r.Header.Del("Authorization")
		} else if !servers.acl.knows(secret) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		agent.ServeHTTP(w, r)
	})
}

// knows says whether there is such a token.
func (a *acl) knows(secret string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tokens[secret] != nil
}
