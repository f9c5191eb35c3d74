package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/record"
)

// settings are policy and queues: as they are in the file, and what was set by
// API in their place. That is kept in a Variable, so that whoever leads next
// goes by it too.
type settings struct {
	store documents

	mu   sync.Mutex
	file config.Config
	set  stored
	// loaded: set is what is stored, with that index.
	loaded bool
	index  uint64
	// fault is why something that is stored cannot be used; the file counts then.
	fault string
}

// stored is the document: the text of each part, nil for one that the file
// decides on.
type stored struct {
	Policy *httpapi.SettingText `json:"policy,omitempty"`
	Queues *httpapi.SettingText `json:"queues,omitempty"`
	// Reservations are beside those of the file.
	Reservations *httpapi.SettingText `json:"reservations,omitempty"`
}

// part is the text of one of them.
func (s *stored) part(name httpapi.Setting) **httpapi.SettingText {
	switch name {
	case httpapi.SettingPolicy:
		return &s.Policy
	case httpapi.SettingReservations:
		return &s.Reservations
	default:
		return &s.Queues
	}
}

// settingsName is the name of the document.
const settingsName = "settings"

// effective is the configuration with what was set in its place.
func (s *stored) effective(file config.Config) (config.Config, error) {
	var faults []error
	if s.Policy != nil {
		policy, err := config.ParsePolicy([]byte(s.Policy.HCL), s.Policy.Name(), file.Levels)
		if err != nil {
			faults = append(faults, err)
		} else {
			policy.Burst = file.Policy.Burst // it has a block of its own
			file.Policy = policy
		}
	}
	if s.Queues != nil {
		queues, err := config.ParseQueues([]byte(s.Queues.HCL), s.Queues.Name())
		if err != nil {
			faults = append(faults, err)
		} else {
			file.Queues = queues
		}
	}
	if s.Reservations != nil {
		more, err := config.ParseReservations([]byte(s.Reservations.HCL), s.Reservations.Name(), file.Levels, file.Reservations)
		if err == nil {
			file.Reservations = slices.Concat(file.Reservations, more)
		}
		faults = append(faults, err)
	}
	return file, errors.Join(faults...)
}

// applySettings puts in force what counts now. The caller holds settings.mu.
func (d *Daemon) applySettings() {
	cfg, err := d.settings.set.effective(d.settings.file)
	d.settings.fault = ""
	if err != nil {
		d.settings.fault = err.Error()
		d.log.Error("what was set by API cannot be used; the file counts in its place", "error", err)
	}
	d.queues.configure(&cfg)
	d.bursts.configure(&cfg)
	for _, w := range d.bursts.warnings() {
		d.log.Warn("a pool was taken out that has purchases", "subject", w.Subject, "warning", w.Text)
	}
	d.log.Info("policy and queues are configured anew", "policy", cfg.Policy.Order, "queues", len(cfg.Queues))
}

// Reload takes policy and queues from another configuration, except for what was
// set by API. What runs is left alone.
func (d *Daemon) Reload(cfg config.Config) {
	s := &d.settings
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file = cfg
	d.applySettings()
	d.poke(true)
}

// loadSettings reads what was set by API, once in a term.
func (d *Daemon) loadSettings(ctx context.Context) error {
	s := &d.settings
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded {
		return nil
	}
	var set stored
	doc, err := s.store.Get(ctx, settingsName)
	switch {
	case errors.Is(err, record.ErrNotFound):
	case err != nil && !errors.Is(err, record.ErrDamaged):
		return fmt.Errorf("read what was set by API: %w", err)
	default:
		if err == nil {
			err = json.Unmarshal(doc.JSON, &set)
		}
		if err != nil {
			set = stored{}
			d.log.Error("what was set by API is damaged; the file counts in its place", "error", err)
		}
	}
	anew := set != stored{} || s.set != stored{}
	s.set, s.index, s.loaded = set, doc.Index, true
	if anew {
		d.applySettings()
	}
	return nil
}

// forget is for a planner that does not lead: another one may set something.
func (s *settings) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = false
}

// Settings says what counts, and where it is from.
func (b backend) Settings() httpapi.Settings {
	s := &b.d.settings
	s.mu.Lock()
	defer s.mu.Unlock()
	policy, halfLife, queues := b.d.queues.settings()
	var warnings []httpapi.Warning
	if v := b.d.view.Load(); v != nil && v.Snapshot != nil {
		warnings = b.d.nameWarnings(v.Snapshot)
	}
	return httpapi.Settings{
		Warnings:     warnings,
		Policy:       httpapi.PolicySetting{Policy: policy, HalfLife: halfLife, Set: s.set.Policy},
		Reservations: httpapi.ReservationsSetting{Reservations: b.d.queues.reserved(time.Time{}), Set: s.set.Reservations},
		Queues:       httpapi.QueuesSetting{Queues: append([]model.Queue{}, queues...), Set: s.set.Queues},
		Fault:        s.fault,
	}
}

// Set puts a text in the place of a part of the file; nil gives the part back to
// the file. It counts at once, and nothing that runs is touched.
func (b backend) Set(ctx context.Context, name httpapi.Setting, text *httpapi.SettingText) (httpapi.Settings, error) {
	d := b.d
	if d.cfg.ObserveOnly {
		return httpapi.Settings{}, &httpapi.Error{Status: http.StatusConflict, Message: "this planner observes only, and writes nothing", Do: "change its file and send it SIGHUP"}
	}
	term, leading := d.leads(ctx)
	if !leading {
		return httpapi.Settings{}, &httpapi.Error{Status: http.StatusServiceUnavailable, Message: "this planner does not lead, and reaches nobody who does", Do: "try again in a few seconds; caravan status says who leads"}
	}
	if err := d.loadSettings(term); err != nil {
		return httpapi.Settings{}, &httpapi.Error{Status: http.StatusServiceUnavailable, Message: err.Error(), Do: "try again when Nomad answers"}
	}
	if err := d.set(term, name, text); err != nil {
		return httpapi.Settings{}, err
	}
	d.poke(true)
	return b.Settings(), nil
}

func (d *Daemon) set(ctx context.Context, name httpapi.Setting, text *httpapi.SettingText) error {
	s := &d.settings
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.set
	*next.part(name) = nil
	if text != nil {
		*next.part(name) = &httpapi.SettingText{HCL: text.HCL, File: text.File, At: d.now().UTC().Truncate(time.Second)}
	}
	if _, err := next.effective(s.file); err != nil {
		return &httpapi.Error{Status: http.StatusBadRequest, Message: err.Error(), Do: "correct it; what counted before still does"}
	}
	doc, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("write what was set: %w", err)
	}
	index, err := s.store.Put(ctx, s.index, doc, settingsName)
	if err != nil {
		s.loaded = false // somebody else may have written it
		return &httpapi.Error{Status: http.StatusConflict, Message: "it cannot be kept, so nothing is changed: " + err.Error(), Do: "try again"}
	}
	s.set, s.index = next, index
	d.applySettings()
	return nil
}
