package carbon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// service answers as it is told, or fails.
type service struct {
	status int
	body   string
	err    error
	asked  []*http.Request
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked = append(s.asked, r)
	if s.err != nil {
		return nil, s.err
	}
	return &http.Response{StatusCode: s.status, Header: http.Header{"Location": {"https://elsewhere.example/"}}, Body: io.NopCloser(strings.NewReader(s.body)), Request: r}, nil
}

// clock stands until it is moved.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func rig(s *service, change func(*Options)) (*Source, *clock) {
	c := &clock{time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	o := Options{URL: "https://carbon.example/latest?zone={region}&key=secret", Value: "carbonIntensity", Keep: 2 * time.Hour, Transport: s, Now: c.now}
	if change != nil {
		change(&o)
	}
	return New(o), c
}

// A good figure counts until it is too old, whatever came after it.
func TestKeepsTheLastGoodFigure(t *testing.T) {
	s := &service{status: 200, body: `{"zone": "IE", "carbonIntensity": 291.5}`}
	source, c := rig(s, nil)
	if _, known := source.At("IE", c.at); known {
		t.Error("a figure is known before anybody was asked")
	}
	news, changed := source.Ask(t.Context(), []string{"IE"})
	if len(news) != 0 || !changed {
		t.Errorf("news %v, changed %t", news, changed)
	}
	if got := s.asked[0].URL.String(); got != "https://carbon.example/latest?zone=IE&key=secret" || s.asked[0].Header.Get("Authorization") != "" {
		t.Errorf("asked %s, %v", got, s.asked[0].Header)
	}
	if _, changed = source.Ask(t.Context(), []string{"IE"}); changed {
		t.Error("the same figure is another one")
	}
	for step, fail := range []service{{err: errors.New("no route")}, {err: errors.New("no route")}, {status: 503}, {status: 302}, {status: 200, body: `{"carbonIntensity": -4}`}} {
		s.status, s.body, s.err = fail.status, fail.body, fail.err
		c.at = c.at.Add(20 * time.Minute)
		news, changed = source.Ask(t.Context(), []string{"IE"})
		if wantNews := step != 1; changed || (len(news) == 1) != wantNews {
			t.Errorf("step %d: news %v, changed %t: the same fault is told of once", step, news, changed)
		}
		for _, n := range news {
			if n.Err == nil || strings.Contains(n.Err.Error(), "secret") {
				t.Errorf("step %d: error %v: want one without the URL's key", step, n.Err)
			}
		}
		if grams, known := source.At("IE", c.at); grams != 291.5 || !known {
			t.Errorf("step %d: %g, %t: want the last good one", step, grams, known)
		}
	}
	if _, known := source.At("IE", c.at.Add(21*time.Minute)); known {
		t.Error("a figure of two hours and a minute ago counts")
	}
	s.status, s.body = 200, `{"carbonIntensity": 300}`
	news, changed = source.Ask(t.Context(), []string{"IE"})
	if diff := cmp.Diff([]News{{Region: "IE"}}, news); diff != "" || !changed {
		t.Errorf("it is well again (-want +got), changed %t:\n%s", changed, diff)
	}
	for _, r := range s.asked {
		if r.URL.Host != "carbon.example" {
			t.Errorf("%s was asked: a redirect is followed", r.URL.Host)
		}
	}
}

// The token is read each time, and goes into no error.
func TestToken(t *testing.T) {
	s := &service{status: 200, body: `{"carbonIntensity": 1}`}
	reads := 0
	token := func() (string, error) {
		if reads++; reads == 2 {
			return "", errors.New("read token: no such file")
		}
		return fmt.Sprint("t", reads), nil
	}
	source, _ := rig(s, func(o *Options) { o.Token = token })
	source.Ask(t.Context(), []string{"IE"})
	news, _ := source.Ask(t.Context(), []string{"IE"})
	if len(s.asked) != 1 || s.asked[0].Header.Get("Authorization") != "Bearer t1" || len(news) != 1 || !strings.Contains(news[0].Err.Error(), "no such file") {
		t.Errorf("%d requests, news %v", len(s.asked), news)
	}
	source, _ = rig(s, func(o *Options) { o.Token, o.Header = token, "auth-token" })
	source.Ask(t.Context(), []string{"IE"})
	if got := s.asked[1].Header; got.Get("auth-token") != "t3" || got.Get("Authorization") != "" {
		t.Errorf("headers %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.err = context.Canceled
	if news, _ := source.Ask(ctx, []string{"IE"}); len(news) != 0 {
		t.Errorf("the end of the planner is news: %v", news)
	}
}

func TestValue(t *testing.T) {
	tests := map[string]struct {
		document, path string
		want           float64
		fault          string
	}{
		"a number":        {`{"carbonIntensity": 291}`, "carbonIntensity", 291, ""},
		"deep":            {`{"data": [{"intensity": {"actual": 0}}]}`, "data.0.intensity.actual", 0, ""},
		"the most":        {`[3e3]`, "0", 3000, ""},
		"negative":        {`{"a": -1}`, "a", 0, "want 0 to 3000 g/kWh"},
		"absurd":          {`{"a": 3001}`, "a", 0, "want 0 to 3000"},
		"endless":         {`{"a": 1e999}`, "a", 0, "want 0 to 3000"},
		"NaN":             {`{"a": NaN}`, "a", 0, "it is no JSON"},
		"null":            {`{"a": null}`, "a", 0, "a is no number"},
		"text":            {`{"a": "291"}`, "a", 0, "a is no number"},
		"not there":       {`{"b": 1}`, "a", 0, `it has no "a"`},
		"beyond a list":   {`{"a": [1]}`, "a.1", 0, `it has no "1" on the way to a.1`},
		"below a number":  {`{"a": 1}`, "a.b", 0, `it has no "b"`},
		"below the start": {`[1]`, "-1", 0, `it has no "-1"`},
		"nothing":         {``, "a", 0, "it is no JSON"},
		"a page":          {`<html>`, "a", 0, "it is no JSON"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Value([]byte(test.document), test.path)
			if got != test.want || (err == nil) != (test.fault == "") || err != nil && !strings.Contains(err.Error(), test.fault) {
				t.Errorf("%g, %v: want %g, %q", got, err, test.want, test.fault)
			}
		})
	}
	s := &service{status: 200, body: `{"a": "` + strings.Repeat("x", maxAnswer) + `", "carbonIntensity": 1}`}
	source, _ := rig(s, nil)
	if news, _ := source.Ask(t.Context(), []string{"IE"}); len(news) != 1 || !strings.Contains(news[0].Err.Error(), "longer than") {
		t.Errorf("news of an endless answer: %v", news)
	}
}

// Whatever a source says, a figure is one or there is an error.
func FuzzValue(f *testing.F) {
	f.Add(`{"a": [1, {"b": 2}]}`, "a.1.b")
	f.Add(`{"a": 1e400}`, "a")
	f.Fuzz(func(t *testing.T, document, path string) {
		if grams, err := Value([]byte(document), path); err == nil && !(grams >= 0 && grams <= Most) {
			t.Errorf("%s in %s is %g", path, document, grams)
		}
	})
}
