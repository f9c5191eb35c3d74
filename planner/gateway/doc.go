// Package gateway serves the whole of Nomad's HTTP API as a reverse proxy, so
// that NOMAD_ADDR may point at it, and holds managed jobs at the door: a job
// that asks for managed devices is registered with the gate, under its user's
// own token, and recorded for the planner, before Nomad could place any of it.
//
// Everything else passes as it came: streams, websockets, blocking queries,
// tokens, and the bodies of jobs that Caravan does not manage.
//
// What a request is, is decided once (classify, decode) and by the same rules
// as Nomad's own; where two readings of a request are possible it is refused,
// never passed. docs/gateway.md says what a user sees.
package gateway
