package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Setting is a part of the planner's file that may be replaced while it runs.
type Setting string

// The settings.
const (
	// SettingPolicy is the policy block.
	SettingPolicy Setting = "policy"
	// SettingQueues are all queue blocks together.
	SettingQueues Setting = "queues"
	// SettingReservations are reservation blocks that count beside those of the
	// file.
	SettingReservations Setting = "reservations"
)

// Settings is GET /settings: policy and queues as they count now.
type Settings struct {
	Policy PolicySetting `json:"policy"`
	Queues QueuesSetting `json:"queues"`
	// Reservations are all that count.
	Reservations ReservationsSetting `json:"reservations"`
	// Fault says why what was set cannot be used, so that the file counts.
	Fault string `json:"fault,omitempty"`
	// Warnings are of names that nobody has, in the policy or in a reservation: what
	// is said of them does nothing.
	Warnings []Warning `json:"warnings,omitempty"`
}

// PolicySetting is the policy in force.
type PolicySetting struct {
	Policy core.Policy `json:"policy"`
	// HalfLife is after how long what a queue has used counts half.
	HalfLife time.Duration `json:"half_life_ns"`
	// Set is what was set by API; nil: the planner's file counts.
	Set *SettingText `json:"set,omitempty"`
}

// QueuesSetting are the queues in force.
type QueuesSetting struct {
	Queues []model.Queue `json:"queues"`
	Set    *SettingText  `json:"set,omitempty"`
}

// ReservationsSetting are the reservations in force: those of the file, and those
// that were set beside them.
type ReservationsSetting struct {
	Reservations []model.Reservation `json:"reservations"`
	Set          *SettingText        `json:"set,omitempty"`
}

// SettingText is what was set, and when.
type SettingText struct {
	HCL string    `json:"hcl"`
	At  time.Time `json:"at"`
	// File is the name of the file that it was in, as whoever sent it says.
	File string `json:"file,omitempty"`
}

// Name is what faults in the text call it.
func (t *SettingText) Name() string {
	if t.File == "" {
		return "the text"
	}
	return t.File
}

// queryFile is the parameter with SettingText.File.
const queryFile = "file"

// maxFileName bounds SettingText.File, in bytes.
const maxFileName = 256

// maxSetting bounds a text that is set, in bytes.
const maxSetting = 1 << 20

// Configurable is the part of the Backend that changes settings.
type Configurable interface {
	// Settings are those that count now.
	Settings() Settings
	// Set replaces one by a text in HCL, as in the planner's file, or gives it
	// back to the file where text is nil. When it was set is for the planner to say.
	Set(ctx context.Context, name Setting, text *SettingText) (Settings, error)
}

func (s *server) handleSettings(mux *http.ServeMux) {
	mux.HandleFunc("GET "+Prefix+"/settings", s.answer(s.settings))
	for _, name := range []Setting{SettingPolicy, SettingQueues, SettingReservations} {
		path := Prefix + "/settings/" + string(name)
		mux.HandleFunc("PUT "+path, s.answer(func(r *http.Request) (any, error) { return s.set(r, name) }))
		mux.HandleFunc("DELETE "+path, s.answer(func(r *http.Request) (any, error) { return s.unset(r, name) }))
	}
}

func (s *server) settings(r *http.Request) (any, error) {
	if err := s.authorize(r, RightReadOperator, "*"); err != nil {
		return nil, err
	}
	return s.b.Settings(), nil
}

// set takes the text as it is, so that a file can be sent with any program.
func (s *server) set(r *http.Request, name Setting) (any, error) {
	if err := s.authorize(r, RightManage, "*"); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, maxSetting+1))
	if err != nil {
		return nil, &Error{Status: http.StatusBadRequest, Message: "the text cannot be read: " + err.Error()}
	}
	if len(b) > maxSetting {
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the text has more than %d bytes", maxSetting), Do: "put it into the planner's file"}
	}
	file := r.URL.Query().Get(queryFile)
	if len(file) > maxFileName || strings.ContainsFunc(file, unicode.IsControl) {
		return nil, &Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("%s is %.20q…: want the name of a file, at most %d bytes, in one line", queryFile, file, maxFileName)}
	}
	return s.b.Set(r.Context(), name, &SettingText{HCL: string(b), File: file})
}

func (s *server) unset(r *http.Request, name Setting) (any, error) {
	if err := s.authorize(r, RightManage, "*"); err != nil {
		return nil, err
	}
	return s.b.Set(r.Context(), name, nil)
}

// Settings asks for policy and queues as they count now.
func (c *Client) Settings(ctx context.Context) (Settings, error) {
	return get[Settings](ctx, c, "settings")
}

// Set replaces a setting by a text in HCL. file is the name that faults in it begin
// with.
func (c *Client) Set(ctx context.Context, name Setting, text []byte, file string) (Settings, error) {
	query := url.Values{}
	if file != "" {
		query.Set(queryFile, file)
	}
	return send[Settings](ctx, c, http.MethodPut, "text/plain; charset=utf-8", text, query, "settings", string(name))
}

// Unset gives a setting back to the planner's file.
func (c *Client) Unset(ctx context.Context, name Setting) (Settings, error) {
	return do[Settings](ctx, c, http.MethodDelete, nil, nil, "settings", string(name))
}
