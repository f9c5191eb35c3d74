package progress

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caravan-sched/caravan/driver/gangapi"
)

// maxLine bounds a line of the protocol and a body of the hook, in bytes.
const maxLine = 8 << 10

// maxPath is Linux's bound on a path.
const maxPath = 4096

// told is what one line says. What it does not say is nil.
type told struct {
	step       *int64
	loss       *float64
	amounts    amounts
	checkpoint *toldCheckpoint
}

// amounts are what is told as a finite number that is not negative, in the order
// of amountKeys; nil is not told.
type amounts [len(amountKeys)]*float64

var amountKeys = [...]string{"throughput", "batch", "noise_scale", "fetch_s", "prepare_s", "compute_s"}

// apply gives the progress what is told.
func (a *amounts) apply(p *gangapi.Progress) {
	p.Throughput, p.Batch, p.NoiseScale, p.FetchS, p.PrepareS, p.ComputeS = a[0], a[1], a[2], a[3], a[4], a[5]
}

type toldCheckpoint struct {
	step *int64
	path string
}

// parseLine reads one line, without its end: either words, such as
//
//	step 1200
//	step=1200 loss=0.25 throughput=5300
//	batch=512 fetch_s=0.02 prepare_s=0.05 compute_s=0.3
//	checkpoint step=1200 path=/data/step-1200
//
// or a JSON object with the same keys. In words, "step" and "path" after
// "checkpoint" are the checkpoint's own; a checkpoint without a step has the
// line's. An empty line says nothing.
func parseLine(line []byte) (told, error) {
	line = bytes.TrimSpace(line)
	if len(line) > maxLine {
		return told{}, fmt.Errorf("the line is longer than %d bytes", maxLine)
	}
	if len(line) > 0 && line[0] == '{' {
		return parseJSON(line)
	}
	if !utf8.Valid(line) {
		return told{}, errors.New("the line is not UTF-8")
	}
	return parseWords(strings.Fields(string(line)))
}

func parseWords(words []string) (told, error) {
	var t told
	var faults []error
	for i := 0; i < len(words); i++ {
		key, value, ok := strings.Cut(words[i], "=")
		switch {
		case ok:
		case key == "checkpoint":
		case i+1 < len(words) && (key == "step" || key == "loss" || slices.Contains(amountKeys[:], key)):
			i++
			value = words[i]
		}
		faults = append(faults, t.set(key, value))
	}
	return t.finish(faults)
}

func (t *told) set(key, value string) error {
	var err error
	switch key {
	case "step":
		var n int64
		if n, err = parseStep(value); err != nil {
			return err
		}
		if t.checkpoint != nil {
			t.checkpoint.step = &n
		} else {
			t.step = &n
		}
	case "loss":
		t.loss, err = parseNumber(key, value)
	case "checkpoint":
		t.checkpoint = &toldCheckpoint{path: value}
	case "path":
		if t.checkpoint == nil {
			return fmt.Errorf("path = %s: only after checkpoint", shown(value))
		}
		t.checkpoint.path = value
	default:
		at := slices.Index(amountKeys[:], key)
		if at < 0 {
			return fmt.Errorf("%s: it is none of step, loss, %s, checkpoint", shown(key), strings.Join(amountKeys[:], ", "))
		}
		t.amounts[at], err = parseNumber(key, value)
	}
	return err
}

// finish checks what is the same for words and JSON.
func (t *told) finish(faults []error) (told, error) {
	for i, x := range t.amounts {
		if x != nil && !(*x >= 0 && *x <= math.MaxFloat64) {
			faults = append(faults, fmt.Errorf("%s = %v: a finite number, not negative", amountKeys[i], *x))
		}
	}
	if c := t.checkpoint; c != nil {
		if c.step == nil {
			c.step = t.step
		}
		if len(c.path) > maxPath || !utf8.ValidString(c.path) || strings.ContainsFunc(c.path, unicode.IsControl) {
			faults = append(faults, fmt.Errorf("path = %s: at most %d bytes of UTF-8 without control characters", shown(c.path), maxPath))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return told{}, err
	}
	return *t, nil
}

func parseStep(value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("step = %s: a whole number, not negative", shown(value))
	}
	return n, nil
}

func parseNumber(key, value string) (*float64, error) {
	x, err := strconv.ParseFloat(value, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return nil, fmt.Errorf("%s = %s: a number", key, shown(value))
	}
	return &x, nil
}

// shown is a value as an error shows it: short.
func shown(value string) string {
	const most = 60
	if len(value) > most {
		return strconv.Quote(value[:most]) + "…"
	}
	return strconv.Quote(value)
}

// message is the JSON form. A number may be a string too, because JSON has no
// "NaN" and "Infinity".
type message struct {
	Step       json.RawMessage `json:"step"`
	Loss       json.RawMessage `json:"loss"`
	Throughput json.RawMessage `json:"throughput"`
	Batch      json.RawMessage `json:"batch"`
	NoiseScale json.RawMessage `json:"noise_scale"`
	FetchS     json.RawMessage `json:"fetch_s"`
	PrepareS   json.RawMessage `json:"prepare_s"`
	ComputeS   json.RawMessage `json:"compute_s"`
	Checkpoint json.RawMessage `json:"checkpoint"`
}

// parseJSON reads {"step": 1200, "loss": 0.25, "throughput": 5300,
// "checkpoint": {"step": 1200, "path": "/data/step-1200"}}. In place of the
// object, checkpoint may be true, or the path.
func parseJSON(b []byte) (told, error) {
	var m message
	if err := strict(b, &m); err != nil {
		return told{}, err
	}
	var t told
	var faults []error
	number := func(key string, raw json.RawMessage) {
		if value := unquoted(raw); value != "" {
			faults = append(faults, t.set(key, value))
		}
	}
	number("step", m.Step)
	number("loss", m.Loss)
	for i, raw := range [...]json.RawMessage{m.Throughput, m.Batch, m.NoiseScale, m.FetchS, m.PrepareS, m.ComputeS} {
		number(amountKeys[i], raw)
	}
	c, err := parseCheckpoint(m.Checkpoint)
	t.checkpoint = c
	return t.finish(append(faults, err))
}

// unquoted is a value's text, "" for one that is missing or null.
func unquoted(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text // "" for null
	}
	return string(raw)
}

func parseCheckpoint(raw json.RawMessage) (*toldCheckpoint, error) {
	var path string
	switch text := string(raw); {
	case text == "" || text == "null" || text == "false":
		return nil, nil
	case text == "true":
		return &toldCheckpoint{}, nil
	case json.Unmarshal(raw, &path) == nil:
		return &toldCheckpoint{path: path}, nil
	}
	var object struct {
		Step json.RawMessage `json:"step"`
		Path string          `json:"path"`
	}
	if err := strict(raw, &object); err != nil {
		return nil, fmt.Errorf("checkpoint: true, a path, or an object with step and path: %w", err)
	}
	c := &toldCheckpoint{path: object.Path}
	value := unquoted(object.Step)
	if value == "" {
		return c, nil
	}
	step, err := parseStep(value)
	c.step = &step
	return c, err
}

// strict decodes one JSON value with known keys only: a misspelt key should
// not look as if it had been understood.
func strict(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("read JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("read JSON: something follows the value")
	}
	return nil
}
