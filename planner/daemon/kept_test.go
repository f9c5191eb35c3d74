package daemon

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	known "github.com/caravan-sched/caravan/planner/history"
	"github.com/caravan-sched/caravan/planner/record"
	used "github.com/caravan-sched/caravan/planner/usage"
)

// keepWords keeps a list of words.
func keepWords(store documents, wins bool) *kept[[]string] {
	return &kept[[]string]{store: store, names: []string{"a", "b"}, about: "the words", every: time.Minute, wins: wins,
		encode: func(words *[]string) ([]byte, error) {
			if len(*words) > 3 {
				return nil, errors.New("too many")
			}
			return json.Marshal(words)
		},
		decode: func(doc []byte) (*[]string, error) { words := new([]string); return words, json.Unmarshal(doc, words) }}
}

// keptRig drives one kept list of words on a store.
type keptRig struct {
	*testing.T
	store *fakeUsage
	kept  *kept[[]string]
	now   time.Time
}

func newKeptRig(t *testing.T, wins bool) *keptRig {
	store := &fakeUsage{doc: []byte(`["theirs"]`), index: 5}
	return &keptRig{T: t, store: store, kept: keepWords(store, wins), now: time.Unix(1000, 0)}
}

// add learns a word, some time later.
func (r *keptRig) add(after time.Duration, word string) {
	r.now = r.now.Add(after)
	r.kept.is, r.kept.fresh = append(r.kept.is, word), true
}

// load and save are as wanted if their error is want, nil or what it wraps.
func (r *keptRig) load(wantAnew bool, want error) {
	r.Helper()
	if anew, err := r.kept.load(r.Context()); anew != wantAnew || !errors.Is(err, want) {
		r.Errorf("load: anew %v, %v; want %v, %v", anew, err, wantAnew, want)
	}
}

func (r *keptRig) save(want error) {
	r.Helper()
	if err := r.kept.save(r.Context(), r.now); !errors.Is(err, want) {
		r.Errorf("save: %v, want %v", err, want)
	}
}

// has says what is known and what is stored, and how often it was written.
func (r *keptRig) has(known, stored string, writes int) {
	r.Helper()
	if got := strings.Join(r.kept.is, " "); got != known {
		r.Errorf("known: %q, want %q", got, known)
	}
	if got := string(r.store.doc); got != stored || r.store.writes != writes {
		r.Errorf("stored: %s in %d writes, want %s in %d", got, r.store.writes, stored, writes)
	}
}

// Nothing is written over what was not read, also while it cannot be read.
func TestKeptIsReadBeforeItIsWritten(t *testing.T) {
	r := newKeptRig(t, false)
	r.add(time.Hour, "mine")
	r.save(nil)
	r.store.fail = errors.New("no leader")
	r.load(false, r.store.fail)
	r.save(nil)
	r.has("mine", `["theirs"]`, 0)
	r.store.fail = nil
	r.load(true, nil)
	r.save(nil) // nothing is new
	r.has("theirs", `["theirs"]`, 0)
	r.load(false, nil)
	r.add(time.Hour, "mine")
	r.kept.forget()
	r.save(nil)
	r.has("theirs mine", `["theirs"]`, 0)
}

func TestKeptIsWrittenNowAndThen(t *testing.T) {
	r := newKeptRig(t, false)
	r.load(true, nil)
	r.add(time.Hour, "a")
	r.save(nil)
	r.has("theirs a", `["theirs","a"]`, 1)
	r.add(59*time.Second, "b")
	r.save(nil)
	r.has("theirs a b", `["theirs","a"]`, 1)
	r.now = r.now.Add(time.Second)
	r.save(nil)
	r.has("theirs a b", `["theirs","a","b"]`, 2)
	r.now = r.now.Add(time.Hour)
	r.save(nil) // nothing is new
	r.has("theirs a b", `["theirs","a","b"]`, 2)
}

// What cannot be written stays known, and is written the next time.
func TestKeptIsTriedAgain(t *testing.T) {
	r := newKeptRig(t, false)
	r.load(true, nil)
	r.add(time.Hour, "a")
	r.store.fail = errors.New("permission denied")
	r.save(r.store.fail)
	r.load(false, nil)
	r.add(time.Second, "b")
	r.save(r.store.fail)
	r.has("theirs a b", `["theirs"]`, 0)
	r.store.fail = nil
	r.save(nil)
	r.has("theirs a b", `["theirs","a","b"]`, 1)
	r.add(time.Hour, "c")
	if err := r.kept.save(t.Context(), r.now); err == nil || err.Error() != "write the words: too many" {
		t.Errorf("what cannot be encoded: %v", err)
	}
	r.has("theirs a b c", `["theirs","a","b"]`, 1)
}

// After another planner has written it is read again, and what was learned here is
// given up or goes over theirs.
func TestKeptAfterAConflict(t *testing.T) {
	for _, wins := range []bool{false, true} {
		r := newKeptRig(t, wins)
		r.load(true, nil)
		r.store.doc, r.store.index = []byte(`["newer"]`), 9
		r.add(time.Hour, "mine")
		r.save(record.ErrConflict)
		r.save(nil) // before it was read again
		r.has("theirs mine", `["newer"]`, 0)
		r.load(true, nil)
		r.save(nil)
		if wins {
			r.has("theirs mine", `["theirs","mine"]`, 1)
			continue
		}
		r.has("newer", `["newer"]`, 0)
		r.add(time.Hour, "mine")
		r.save(nil)
		r.has("newer mine", `["newer","mine"]`, 1)
	}
}

// What is damaged is learned anew, and written over.
func TestKeptDamaged(t *testing.T) {
	for name, store := range map[string]*fakeUsage{
		"nothing": {}, "no JSON": {index: 3, doc: []byte("[")}, "by Nomad": {index: 3, fail: record.ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			r := newKeptRig(t, false)
			r.store, r.kept.store = store, store
			r.load(true, nil)
			store.fail = nil
			r.add(time.Hour, "mine")
			r.save(nil)
			r.has("mine", `["mine"]`, 1)
		})
	}
}

// While nothing of what was learned can be written, decisions are made and carried
// out all the same, and what is wrong shows; once it can be, all of it is.
func TestPlanningWhileNothingCanBeKept(t *testing.T) {
	d, f := testDaemon(t, job("a"))
	cfg := config.Default()
	cfg.Queues = []model.Queue{{Path: "a"}}
	d.queues.configure(&cfg)
	usage, history, sharing, speeds := new(fakeUsage), new(fakeUsage), new(fakeUsage), new(fakeTallies)
	d.queues.kept, d.learner.kept, d.sharing.kept, d.speeds.store = keepUsage(usage), keepHistory(history), keepSharing(sharing), speeds
	if _, err := d.cycle(t.Context()); err != nil || usage.writes != 1 {
		t.Fatalf("%d writes: %v", usage.writes, err)
	}
	d.queues.kept.saved = time.Time{}
	d.learner.ended(ending("train", 10))
	d.sharing.kept.is.Kinds, d.sharing.kept.fresh = map[string]*used.Kind{"k": {PeaksMiB: []int{1}, Busy: []int{1}, Samples: 1}}, true
	d.speeds.kinds[kind{"ml", "train"}] = d.speeds.keep(kind{"ml", "train"})
	d.speeds.kinds[kind{"ml", "train"}].kept.fresh = true
	away := errors.New("no leader")
	usage.fail, history.fail, sharing.fail, speeds.fail = away, away, away, away
	out, err := d.cycle(t.Context())
	if err != nil || f.carrier.executed != 2 {
		t.Fatalf("carried out %d times: %v", f.carrier.executed, err)
	}
	for _, want := range []string{"what queues have used", "jobs that have ended", "shared GPUs", "speeds"} {
		if out.trouble == nil || !strings.Contains(out.trouble.Error(), want) {
			t.Errorf("trouble %q does not name %s", out.trouble, want)
		}
	}
	usage.fail, history.fail, sharing.fail, speeds.fail = nil, nil, nil, nil
	if out, err := d.cycle(t.Context()); err != nil || out.trouble != nil {
		t.Errorf("after that: %v, %v", err, out.trouble)
	}
	book, err := known.Decode(history.doc)
	if err != nil || len(book.Demands) != 1 || usage.writes != 2 || sharing.writes != 1 || speeds.writes != 1 {
		t.Errorf("history %s (%v), %d, %d and %d writes of the others", history.doc, err, usage.writes, sharing.writes, speeds.writes)
	}
}
