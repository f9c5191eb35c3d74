package agent

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// heartbeat is how often an idle event stream sends an empty object, as
// Nomad's.
const heartbeat = 10 * time.Second

// stream sends events as lines of JSON: those with an index of at least the
// one asked for that are still kept, then new ones.
func (a *Agent) stream(w http.ResponseWriter, r *http.Request) (any, error) {
	v := r.URL.Query()
	var from uint64
	if s := v.Get("index"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return nil, codef(400, "Unable to parse index: %v", err)
		}
		from = n
	}
	topics, err := parseTopics(v["topic"])
	if err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	enc := json.NewEncoder(w)
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	if out.Flush() != nil {
		return nil, nil
	}
	for {
		changed := a.cfg.Server.Store().Changed()
		var batch []state.Events
		a.cfg.Server.Store().View(func(v *state.View) { batch = v.EventsFrom(from) })
		for _, b := range batch {
			from = b.Index + 1
			keep := topics.filter(b.Events, namespace(r))
			if len(keep) == 0 {
				continue
			}
			if enc.Encode(map[string]any{"Index": b.Index, "Events": keep}) != nil || out.Flush() != nil {
				return nil, nil
			}
		}
		select {
		case <-r.Context().Done():
			return nil, nil
		case <-changed:
		case <-tick.C:
			if enc.Encode(struct{}{}) != nil || out.Flush() != nil {
				return nil, nil
			}
		}
	}
}

// topics are what a stream asked for: keys by topic.
type topics map[api.Topic][]string

func parseTopics(raw []string) (topics, error) {
	if len(raw) == 0 {
		return topics{api.TopicAll: {"*"}}, nil
	}
	out := topics{}
	for _, s := range raw {
		parts := strings.Split(s, ":")
		switch len(parts) {
		case 1:
			parts = append(parts, "*")
		case 2:
		default:
			return nil, codef(400, "Invalid topic query: error parsing topics: Invalid key value pair for topic, topic: %s", s)
		}
		t := api.Topic(parts[0])
		out[t] = append(out[t], parts[1])
	}
	return out, nil
}

func (t topics) filter(events []state.Event, ns string) []state.Event {
	var out []state.Event
	for _, e := range events {
		if e.Namespace != "" && !inNamespace(e.Namespace, ns) {
			continue
		}
		keys := append(slices.Clone(t[api.TopicAll]), t[e.Topic]...)
		if slices.ContainsFunc(keys, func(k string) bool {
			return k == "*" || k == e.Key || slices.Contains(e.FilterKeys, k)
		}) {
			out = append(out, e)
		}
	}
	return out
}
