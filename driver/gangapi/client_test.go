package gangapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/driver/rendezvous"
)

const token = "aaa.bbb.ccc"

// planner is a fake that answers as it is told.
type planner struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	body   string
	// hang, while set, lets requests wait until their client is gone.
	hang bool
	// got are the requests so far: path, identity and body.
	got     []string
	arrived chan struct{}
}

func (p *planner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.got = append(p.got, r.Method+" "+r.URL.Path+" "+r.Header.Get(IdentityHeader)+" "+string(body))
	status, text, hang := p.status, p.body, p.hang
	p.mu.Unlock()
	select {
	case p.arrived <- struct{}{}:
	default:
	}
	if hang {
		<-r.Context().Done()
		return
	}
	w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
	w.WriteHeader(status)
	fmt.Fprint(w, text)
}

func (p *planner) set(status int, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.body = status, body
}

func (p *planner) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.got...)
}

const waiting = `{"state":"waiting","joined":1,"size":2}`

func newPlanner(t *testing.T) *planner {
	p := &planner{status: 200, body: waiting, arrived: make(chan struct{}, 1)}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func identityFile(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "nomad_caravan.jwt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newClient(t *testing.T, change func(*Config), addresses ...string) *Client {
	t.Helper()
	config := Config{Addresses: addresses, IdentityFile: identityFile(t, token+"\n")}
	if change != nil {
		change(&config)
	}
	c, err := NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func membershipJSON(t testing.TB, epoch string) string {
	b, err := json.Marshal(rendezvous.Membership{
		Epoch: epoch, Generation: 1, Namespace: "default", Job: "train", Min: 1, Max: 1, MasterAddr: "10.0.0.1", MasterPort: 1,
		Members: []rendezvous.Member{{Group: "g", Alloc: "a", Node: "n", Address: "10.0.0.1", Processes: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestJoin(t *testing.T) {
	sound, broken := membershipJSON(t, "e"), membershipJSON(t, "")
	tests := map[string]struct {
		status int
		body   string
		want   JoinState
		err    error
	}{
		"waiting":              {200, waiting, JoinWaiting, nil},
		"start":                {200, `{"state":"start","start_in_ms":200,"membership":` + sound + `}`, JoinStart, nil},
		"alone":                {200, `{"state":"alone"}`, JoinAlone, nil},
		"refused":              {200, `{"state":"refused","reason":"replaced"}`, JoinRefused, nil},
		"a newer planner":      {200, `{"state":"alone","mood":"good"}`, JoinAlone, nil},
		"nothing":              {200, ``, "", ErrNonsense},
		"null":                 {200, `null`, "", ErrNonsense},
		"an empty object":      {200, `{}`, "", ErrNonsense},
		"a page":               {200, `<html>`, "", ErrNonsense},
		"two values":           {200, waiting + waiting, "", ErrNonsense},
		"cut off":              {200, waiting[:20], "", ErrNonsense},
		"wrong type":           {200, `{"state":7}`, "", ErrNonsense},
		"unknown state":        {200, `{"state":"dance"}`, "", ErrNonsense},
		"start without gang":   {200, `{"state":"start"}`, "", ErrNonsense},
		"start with no epoch":  {200, `{"state":"start","membership":` + broken + `}`, "", ErrNonsense},
		"start in a year":      {200, `{"state":"start","start_in_ms":31536000000,"membership":` + sound + `}`, "", ErrNonsense},
		"start in the past":    {200, `{"state":"start","start_in_ms":-1,"membership":` + sound + `}`, "", ErrNonsense},
		"more than there are":  {200, `{"state":"waiting","joined":3,"size":2}`, "", ErrNonsense},
		"a book":               {200, `{"state":"waiting","reason":"` + strings.Repeat("x", 20_000) + `"}`, "", ErrNonsense},
		"a huge body":          {200, strings.Repeat(" ", maxAnswer) + waiting, "", ErrNonsense},
		"a redirect":           {307, ``, "", ErrNonsense},
		"no such path":         {404, `404 page not found`, "", ErrNonsense},
		"a success of a kind":  {204, ``, "", ErrNonsense},
		"who are you":          {401, `{"error":"no identity"}`, "", ErrRefusedIdentity},
		"not you":              {403, `{"error":"expired"}`, "", ErrRefusedIdentity},
		"standing by":          {503, `{"error":"not the leader"}`, "", ErrUnreachable},
		"overloaded":           {429, ``, "", ErrUnreachable},
		"a proxy without host": {502, `Bad Gateway`, "", ErrUnreachable},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPlanner(t)
			p.set(test.status, test.body)
			got, err := newClient(t, nil, p.URL).Join(t.Context(), JoinRequest{Run: "r", Attempt: 1})
			if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) || got.State != test.want {
				t.Errorf("answer %q, %v; want %q, %v", got.State, err, test.want, test.err)
			}
			if err != nil && len(err.Error()) > 2000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

func TestReport(t *testing.T) {
	tests := map[string]struct {
		body string
		want ReportAnswer
		err  error
	}{
		"nothing new":    {`{"attached":true}`, ReportAnswer{Attached: true}, nil},
		"gone":           {`{"attached":false,"gone":true,"reason":"replaced"}`, ReportAnswer{Gone: true, Reason: "replaced"}, nil},
		"an order":       {`{"attached":true,"order":{"sequence":2,"kind":"suspend","reason":"r"}}`, ReportAnswer{Attached: true, Order: &Order{Sequence: 2, Kind: OrderSuspend, Reason: "r"}}, nil},
		"unknown order":  {`{"attached":true,"order":{"sequence":2,"kind":"dance"}}`, ReportAnswer{}, ErrNonsense},
		"without number": {`{"attached":true,"order":{"kind":"suspend"}}`, ReportAnswer{}, ErrNonsense},
		"empty":          {`{}`, ReportAnswer{}, ErrNonsense},
		"no membership":  {`{"attached":true,"membership":{}}`, ReportAnswer{}, ErrNonsense},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPlanner(t)
			p.set(200, test.body)
			got, err := newClient(t, nil, p.URL).Report(t.Context(), ReportRequest{})
			if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
				t.Errorf("error %v, want %v", err, test.err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

// The next address is tried when one fails, and the good one is asked first
// from then on.
func TestAddressesInTurn(t *testing.T) {
	bad, good, spare := newPlanner(t), newPlanner(t), newPlanner(t)
	bad.set(503, "")
	c := newClient(t, nil, "http://127.0.0.1:1", bad.URL+"/", good.URL, spare.URL)
	for range 3 {
		if _, err := c.Join(t.Context(), JoinRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := []int{len(bad.requests()), len(good.requests()), len(spare.requests())}; !cmp.Equal(got, []int{1, 3, 0}) {
		t.Errorf("requests %v, want the bad planner asked once and the good one thrice", got)
	}
	good.set(403, "")
	spare.set(200, "garbage")
	_, err := c.Join(t.Context(), JoinRequest{})
	for _, want := range []error{ErrUnreachable, ErrRefusedIdentity, ErrNonsense} {
		if !errors.Is(err, want) {
			t.Errorf("error %v, want %v in it", err, want)
		}
	}
}

func TestRequestCarriesTheIdentity(t *testing.T) {
	p := newPlanner(t)
	file := identityFile(t, token)
	c := newClient(t, func(c *Config) { c.IdentityFile = file }, p.URL)
	if _, err := c.Join(t.Context(), JoinRequest{Run: "r", Attempt: 2, Port: 7}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("renewed.b.c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.set(200, `{"attached":true}`)
	if _, err := c.Report(t.Context(), ReportRequest{Run: "r", State: MemberRunning}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`POST /caravan/v1/member/join aaa.bbb.ccc {"run":"r","attempt":2,"wait_ms":0,"address":"","port":7}`,
		`POST /caravan/v1/member/report renewed.b.c {"run":"r","wait_ms":0,"state":"running","epoch":"","generation":0,"seen":0}`,
	}
	if diff := cmp.Diff(want, p.requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestNoIdentity(t *testing.T) {
	tests := map[string]string{
		"empty":        identityFile(t, "\n"),
		"two lines":    identityFile(t, "a\nX-Other: b"),
		"binary":       identityFile(t, "\x00\xff"),
		"huge":         identityFile(t, strings.Repeat("x", maxIdentity+1)),
		"missing":      filepath.Join(t.TempDir(), "none"),
		"a directory":  t.TempDir(),
		"no plain one": "/dev/zero",
	}
	for name, file := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPlanner(t)
			c := newClient(t, func(c *Config) { c.IdentityFile = file }, p.URL)
			_, err := c.Join(t.Context(), JoinRequest{})
			if !errors.Is(err, ErrNoIdentity) {
				t.Errorf("error %v, want %v", err, ErrNoIdentity)
			}
			if told := strings.Contains(err.Error(), "no workload identity at "+file+": the job was not submitted through Caravan's gateway"); told != (name == "missing") {
				t.Errorf("error %q", err)
			}
			if got := p.requests(); len(got) > 0 {
				t.Errorf("the planner was asked: %q", got)
			}
		})
	}
}

// A planner that closed the connection since the last request, by a restart for
// instance, is not taken for an unreachable one.
func TestStaleConnection(t *testing.T) {
	p := newPlanner(t)
	c := newClient(t, nil, p.URL)
	for i := range 5 {
		if _, err := c.Join(t.Context(), JoinRequest{}); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		p.CloseClientConnections()
	}
}

// A cancelled request returns at once, and its error is not taken for the
// planner's.
func TestCancel(t *testing.T) {
	p := newPlanner(t)
	p.hang = true
	c := newClient(t, nil, p.URL, p.URL)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-p.arrived
		cancel()
	}()
	_, err := c.Join(ctx, JoinRequest{WaitMS: 60_000})
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreachable) {
		t.Errorf("error %v, want %v alone", err, context.Canceled)
	}
}

// A planner that accepts and says nothing counts as dead after the wait and
// some slack.
func TestSilentPlanner(t *testing.T) {
	silent, good := newPlanner(t), newPlanner(t)
	silent.hang = true
	c := newClient(t, func(c *Config) { c.DialTimeout, c.Slack = time.Second, time.Millisecond }, silent.URL, good.URL)
	if got, err := c.Join(t.Context(), JoinRequest{WaitMS: 1}); err != nil || got.State != JoinWaiting {
		t.Errorf("answer %+v, %v", got, err)
	}
}

func TestWaitIsBounded(t *testing.T) {
	p := newPlanner(t)
	for _, wait := range []int64{-1, maxWaitMS + 1} {
		if _, err := newClient(t, nil, p.URL).Join(t.Context(), JoinRequest{WaitMS: wait}); err == nil || len(p.requests()) > 0 {
			t.Errorf("a wait of %d ms: error %v, %d requests", wait, err, len(p.requests()))
		}
	}
}

func TestConfigFaults(t *testing.T) {
	tests := map[string]struct {
		config Config
		want   []string
	}{
		"empty": {Config{}, []string{"addresses", "identity file"}},
		"addresses": {Config{IdentityFile: "x", Addresses: []string{"planner", "ftp://a", "http://", "http://u:p@h", "http://h?x", ":"}},
			[]string{`"planner"`, `"ftp://a"`, `"http://"`, `"http://u:p@h"`, `"http://h?x"`, `":"`}},
		"files":    {Config{IdentityFile: "x", Addresses: []string{"https://h"}, CAFile: "/none/ca", CertFile: "/none/cert"}, []string{"/none/ca", "give both or none"}},
		"pair":     {Config{IdentityFile: "x", Addresses: []string{"https://h"}, KeyFile: "/none/key", CertFile: "/none/cert"}, []string{"/none/cert"}},
		"negative": {Config{IdentityFile: "x", Addresses: []string{"https://h"}, Slack: -1}, []string{"negative"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := NewClient(test.config)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q in it", err, want)
				}
			}
		})
	}
}

// Whatever an answer holds, reading it never panics, and what is let through
// can be acted on.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{waiting, `{"state":"start","start_in_ms":1,"membership":` + membershipJSON(f, "e") + `}`,
		`{"attached":true,"order":{"sequence":1,"kind":"restart","reason":"x"}}`, `null`, `[]`, `{"state":null,"attached":null}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := (call[JoinAnswer]{key: "state", validate: JoinAnswer.validate}).read(b); err == nil && a.State == JoinStart {
			if _, err := rendezvous.Env(*a.Membership, a.Membership.Members[0].Alloc, rendezvous.Local{}); err != nil {
				t.Error(err)
			}
		}
		if a, err := (call[ReportAnswer]{key: "attached", validate: ReportAnswer.validate}).read(b); err == nil && a.Order != nil && a.Order.Kind == "" {
			t.Errorf("order %+v", a.Order)
		}
	})
}
