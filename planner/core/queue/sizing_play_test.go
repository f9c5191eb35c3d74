package queue

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/speed"
)

// player is an elastic job of a played workload: n members do n^power of the work
// of one.
type player struct {
	entry     Entry
	at, ended time.Duration
	power     float64
	left      float64 // seconds of one member
	idle      time.Duration
	changes   int
}

// players draws jobs that come every ten minutes, half of which gain little by
// more members.
func players(n int) []*player {
	r := rand.New(rand.NewPCG(3, 4))
	var out []*player
	for i := range n {
		p := &player{at: time.Duration(i) * 10 * time.Minute, power: 0.95}
		if i%2 == 1 {
			p.power = 0.4
		}
		p.left = 3600 * math.Exp(1+1.5*r.Float64())
		p.entry = Entry{Job: &model.Job{}, Waiting: true, Asked: 4, Count: 4, Min: 1, Max: 16, GPUsPerMember: 1}
		data := &model.Speed{}
		for _, m := range []int{1, 16} {
			data.Declared = append(data.Declared, model.SpeedPoint{Members: m, Rate: math.Pow(float64(m), p.power)})
		}
		p.entry.Speed = speed.New(data, nil)
		out = append(out, p)
	}
	return out
}

// playSizes works jobs on so many GPUs minute by minute, with the sizes that an
// order gives or, without one, with those asked for, first come, first served. A
// change of size takes a minute. It returns the mean time from submission to end.
func playSizes(t *testing.T, order Discipline, gpus int, jobs []*player) time.Duration {
	t.Helper()
	const step = time.Minute
	var sum time.Duration
	for now, open := time.Duration(0), len(jobs); open > 0; now += step {
		if now > 1000*time.Hour {
			t.Fatal("it does not end")
		}
		s := Situation{Now: start.Add(now), GPUs: gpus}
		var there []*player
		for _, p := range jobs {
			if p.at <= now && p.ended == 0 {
				e := &p.entry
				e.Left = Estimate{Known: true, Left: time.Duration(p.left / math.Pow(float64(max(e.Members, e.Count)), p.power) * float64(time.Second))}
				there, s.Jobs = append(there, p), append(s.Jobs, *e)
			}
		}
		sizes := make([]int, len(there))
		if order == nil {
			for i := range sizes {
				sizes[i] = 4
			}
		} else {
			for i, standing := range order.Stand(s) {
				if standing.Why != "" {
					sizes[i] = standing.Members
				}
			}
		}
		free := gpus
		for i, p := range there {
			n := sizes[i]
			if n > free {
				n = 0
			}
			free -= n
			if n != p.entry.Members {
				p.idle = step
				p.changes++
			}
			p.entry.Members, p.entry.Held, p.entry.Running, p.entry.Waiting = n, n, n > 0, n == 0
			if p.idle > 0 {
				p.idle -= step
				continue
			}
			if p.left -= step.Seconds() * math.Pow(float64(n), p.power); n > 0 && p.left <= 0 {
				p.ended = now + step
				sum += p.ended - p.at
				open--
			}
		}
	}
	return sum / time.Duration(len(jobs))
}

// Jobs that may have any size end sooner if each has the one that suits it, and
// do not change it all the time.
func TestSizesEndJobsSooner(t *testing.T) {
	fixed := playSizes(t, nil, 32, players(40))
	for name, order := range map[string]Discipline{"goodput": newGoodput(Policy{}), "marginal": newMarginal(Policy{})} {
		jobs := players(40)
		got := playSizes(t, order, 32, jobs)
		changes := 0
		for _, p := range jobs {
			changes += p.changes
		}
		t.Logf("%s: a job takes %s on average, and %s with the size it asks for; it gets another size %.1f times", name, got.Round(time.Minute), fixed.Round(time.Minute), float64(changes)/40)
		if got > fixed*19/20 || changes > 40*20 {
			t.Errorf("%s: %s on average, against %s, with %d changes of size; want a twentieth less, and at most 20 changes each", name, got, fixed, changes)
		}
	}
}
