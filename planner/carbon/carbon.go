// Package carbon asks an HTTP source how many grams of CO2 a kWh costs in regions,
// as public services of such figures answer: one number in a JSON document.
package carbon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Region is the place of a region's name in a source's URL.
const Region = "{region}"

const (
	// Most is the highest figure that is believed, in g/kWh: the dirtiest grids have
	// about 1,000, lignite alone 1,400. What is above is in another unit.
	Most = 3000
	// timeout is for one request and maxAnswer for what is read of it, in bytes.
	timeout   = 10 * time.Second
	maxAnswer = 1 << 20
)

// Options say whom to ask.
type Options struct {
	// URL has Region where a region's name goes.
	URL string
	// Value leads to the number in an answer: keys and, for lists, positions from 0,
	// with dots between them: "data.0.intensity.actual".
	Value string
	// Header carries the token; "" is Authorization, with the word Bearer before it.
	Header string
	// Token is asked before each round, so that a new one counts; nil: there is none.
	Token func() (string, error)
	// Keep is for how long the last good figure counts when no newer one comes.
	Keep time.Duration
	// Transport is for tests; nil is HTTP.
	Transport http.RoundTripper
	// Now is the clock.
	Now func() time.Time
}

// Source remembers what it was told. It may be used by several at once.
type Source struct {
	options Options
	client  http.Client

	mu    sync.Mutex
	known map[string]figure
	// faults are what went wrong when a region was last asked for.
	faults map[string]string
}

// figure is one good answer.
type figure struct {
	grams float64
	at    time.Time
}

// New makes a source; it asks nobody yet.
func New(o Options) *Source {
	return &Source{
		options: o, known: map[string]figure{}, faults: map[string]string{},
		client: http.Client{
			Timeout: timeout, Transport: o.Transport,
			// A token is for the host that was configured, and for no other.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// News is that a region's figure cannot be had, or (Err is nil) can be had again.
type News struct {
	Region string
	Err    error
}

// Ask asks for each region once. It returns what is news, and whether a figure is
// another one than before.
func (s *Source) Ask(ctx context.Context, regions []string) (news []News, changed bool) {
	token, err := "", error(nil)
	if s.options.Token != nil {
		token, err = s.options.Token()
	}
	for _, region := range regions {
		grams, asked := 0.0, err
		if asked == nil {
			grams, asked = s.ask(ctx, region, token)
		}
		if ctx.Err() != nil {
			return news, changed
		}
		text := ""
		if asked != nil {
			text = asked.Error()
		}
		s.mu.Lock()
		if text != s.faults[region] {
			news = append(news, News{region, asked})
		}
		s.faults[region] = text
		if asked == nil {
			before, there := s.known[region]
			changed = changed || !there || before.grams != grams
			s.known[region] = figure{grams, s.options.Now()}
		}
		s.mu.Unlock()
	}
	return news, changed
}

// At is a region's figure in g/kWh, if a good one came within Keep.
func (s *Source) At(region string, now time.Time) (grams float64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, known := s.known[region]
	if !known || now.Sub(f.at) > s.options.Keep {
		return 0, false
	}
	return f.grams, true
}

func (s *Source) ask(ctx context.Context, region, token string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.ReplaceAll(s.options.URL, Region, region), nil)
	if err != nil {
		return 0, errors.New("make request: the URL is none")
	}
	request.Header.Set("Accept", "application/json")
	switch {
	case token == "":
	case s.options.Header == "":
		request.Header.Set("Authorization", "Bearer "+token)
	default:
		request.Header.Set(s.options.Header, token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		// The URL may have a key in it, which is for no log.
		var about *url.Error
		if errors.As(err, &about) {
			err = about.Err
		}
		return 0, fmt.Errorf("ask %s: %w", request.URL.Host, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("ask %s: it answers with status %d", request.URL.Host, response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return 0, fmt.Errorf("read answer of %s: %w", request.URL.Host, err)
	}
	if len(body) > maxAnswer {
		return 0, fmt.Errorf("read answer of %s: it is longer than %d bytes", request.URL.Host, maxAnswer)
	}
	grams, err := Value(body, s.options.Value)
	if err != nil {
		return 0, fmt.Errorf("read answer of %s: %w", request.URL.Host, err)
	}
	return grams, nil
}

// Value is the figure at a path of a JSON document, in g/kWh; one that cannot be
// such is an error.
func Value(document []byte, path string) (float64, error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	var at any
	if err := d.Decode(&at); err != nil {
		return 0, errors.New("it is no JSON")
	}
	for key := range strings.SplitSeq(path, ".") {
		var next any
		there := false
		switch in := at.(type) {
		case map[string]any:
			next, there = in[key]
		case []any:
			if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(in) {
				next, there = in[i], true
			}
		}
		if !there {
			return 0, fmt.Errorf("it has no %q on the way to %s", key, path)
		}
		at = next
	}
	number, ok := at.(json.Number)
	if !ok {
		return 0, fmt.Errorf("%s is no number", path)
	}
	grams, err := number.Float64()
	if err != nil || !(grams >= 0 && grams <= Most) {
		return 0, fmt.Errorf("%s is %.20s: want 0 to %d g/kWh", path, number, Most)
	}
	return grams, nil
}
