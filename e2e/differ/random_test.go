package differ

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/caravan-sched/caravan/internal/nomadproc"
)

// Random sequences need a real Nomad to be compared with. firstEnv and
// countEnv say which seeds to play; the default is a few.
const (
	firstEnv     = "CARAVAN_DIFFER_FIRST"
	countEnv     = "CARAVAN_DIFFER_SEEDS"
	defaultSeeds = 3
	// attemptsEnv bounds how often a sequence that differs is played to find a
	// shorter one: each takes a real Nomad half a minute.
	attemptsEnv     = "CARAVAN_DIFFER_ATTEMPTS"
	defaultAttempts = 12
)

func number(t *testing.T, env string, otherwise int) int {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("read %s: %q is not a number, at least 1", env, text)
	}
	return n
}

// TestRandom plays random sequences on both back ends.
func TestRandom(t *testing.T) {
	if _, ok := nomadproc.Find(); !ok {
		t.Skip("no Nomad is installed to be compared with; its answers of once are in TestRows")
	}
	first := number(t, firstEnv, 1)
	for seed := first; seed < first+number(t, countEnv, defaultSeeds); seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			real, release, _ := realNomad(t)
			defer release()
			script := scriptOf(seed)
			want, got := playBoth(t, real, script)
			if slices.Equal(want, got) {
				return
			}
			compare(t, "the stand-in differs from Nomad", script, want, got)
			script, want = reduce(t, real, script, want, got)
			t.Logf("as a row:\n%s", row{why: "seed " + strconv.Itoa(seed), script: script, want: want})
		})
	}
}

// playBoth plays a script on both back ends at once.
func playBoth(t *testing.T, real *world, script []step) (want, got []string) {
	t.Helper()
	stand := standIn(t)
	var group sync.WaitGroup
	var errReal, errStand error
	group.Go(func() { want, errReal = real.play(context.WithoutCancel(t.Context()), script) })
	group.Go(func() { got, errStand = stand.play(t.Context(), script) })
	group.Wait()
	if errReal != nil {
		discard(t)
		t.Fatalf("on Nomad: %v\n%s", errReal, row{script: script, want: want})
	}
	if errStand != nil {
		t.Errorf("on the stand-in: %v", errStand)
		got = append(got, errStand.Error())
	}
	return want, got
}

// reduce cuts the script off after the first difference, and leaves out steps
// without which there is still one.
func reduce(t *testing.T, real *world, script []step, want, got []string) ([]step, []string) {
	t.Helper()
	cut := func(script []step, want, got []string) ([]step, []string) {
		for i := range script {
			if i >= len(got) || i >= len(want) || want[i] != got[i] {
				return script[:i+1], want[:min(i+1, len(want))]
			}
		}
		return script, want
	}
	script, want = cut(script, want, got)
	left := number(t, attemptsEnv, defaultAttempts)
	for at := len(script) - 2; at >= 0 && left > 0; at-- {
		left--
		shorter := slices.Concat(script[:at], script[at+1:])
		w, g := playBoth(t, real, shorter)
		if !slices.EqualFunc(w, g, strings.EqualFold) {
			script, want = cut(shorter, w, g)
			at = min(at, len(script)-1)
		}
	}
	return script, want
}
