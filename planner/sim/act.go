package sim

import (
	"errors"
	"fmt"
)

// ErrScheduler is the error for a scheduler that does what cannot be done.
var ErrScheduler = errors.New("impossible action")

// act carries out one action, or refuses what no cluster could do.
func (r *run) act(a Action) error {
	if a.Act == Divide {
		return r.divide(a)
	}
	if a.Job < 0 || a.Job >= len(r.jobs) {
		return fmt.Errorf("job number %d: want 0 to %d", a.Job, len(r.jobs)-1)
	}
	j := &r.jobs[a.Job]
	switch {
	case a.Act == Start && j.phase == waiting:
		return r.start(a)
	case a.Act == Hold && (j.phase == waiting || j.phase == holding):
		return r.hold(a)
	case a.Act == Drop && j.phase == holding:
		r.log(a.Job, EventStop, j.pieces, 0)
		r.release(a.Job)
		j.phase = waiting
		r.queue(j, 1)
		return nil
	case a.Act == Stop && j.phase == running:
		r.stop(a.Job)
		return nil
	case a.Act == Resize && j.phase == running:
		return r.resize(a)
	}
	return fmt.Errorf("job %s: action %d in phase %d", j.ID, a.Act, j.phase)
}

func count(pieces []Piece) int {
	n := 0
	for _, p := range pieces {
		n += len(p.GPUs)
	}
	return n
}

func (r *run) start(a Action) error {
	j := &r.jobs[a.Job]
	if n := count(a.Pieces); n != j.GPUs && (j.Max == 0 || n < j.Min || n > j.Max) {
		return fmt.Errorf("job %s: %d GPUs: it asks for %d", j.ID, n, j.GPUs)
	}
	if err := r.place(a.Job, a.Pieces); err != nil {
		return err
	}
	r.queue(j, -1)
	j.began = r.now
	r.begin(a.Job)
	return nil
}

// hold gives some of a job's members GPUs. When all have theirs the job starts.
func (r *run) hold(a Action) error {
	j := &r.jobs[a.Job]
	if j.phase == waiting {
		r.queue(j, -1)
		j.phase, j.began = holding, r.now
	}
	j.held += float64(j.has()) / unit * (r.now - j.began)
	j.began = r.now
	if err := r.place(a.Job, a.Pieces); err != nil {
		return err
	}
	switch {
	case j.placed > j.GPUs:
		return fmt.Errorf("job %s: %d GPUs: it asks for %d", j.ID, j.placed, j.GPUs)
	case j.placed == j.GPUs:
		r.begin(a.Job)
	default:
		r.log(a.Job, EventResize, j.pieces, 0)
	}
	return nil
}

// begin starts a job whose GPUs are all there.
func (r *run) begin(i int) {
	j := &r.jobs[i]
	wait := r.now - j.asked
	load := 0.0
	if j.first < 0 {
		j.first = r.now
		j.booting -= max(0, j.booted-r.now)
		j.apart = min(r.gauges.apart(j.GPUs)-j.apart, wait-j.booting)
	} else {
		j.again += wait
		if !j.unsaved {
			load = r.Restart.Seconds(j.GPUs)
		}
	}
	j.phase, j.since, j.begins, j.working = running, r.now, r.now+load, true
	r.busy += j.has()
	j.saved = j.left
	r.pace(i)
	r.logSpeed(i, EventStart)
}

// pace sets a running job's speed by its place, and when it will be done.
func (r *run) pace(i int) {
	j := &r.jobs[i]
	j.speed = r.Speed.Of(&JobShape{GPUs: j.placed, Model: j.Model, Class: j.Class}, j.pieces)
	if j.Max > 0 && j.placed != j.GPUs {
		j.speed *= r.Growth(j.Class, j.GPUs, j.placed)
	}
	if j.each < unit {
		j.speed *= r.slowed(j)
	}
	j.turn++
	r.calendar.add(event{at: j.finish(), what: finished, of: i, turn: j.turn})
}

// stop lets a job save its state; then it leaves. One that saves nothing leaves at once.
func (r *run) stop(i int) {
	j := &r.jobs[i]
	j.advance(r.now)
	j.phase = leaving
	j.turn++
	leaves := r.now
	if !j.unsaved {
		leaves += r.Restart.Seconds(j.GPUs)
		r.log(i, EventResize, j.pieces, 0)
	}
	r.calendar.add(event{at: leaves, what: stopped, of: i, turn: j.turn})
}

// resize gives a running job other GPUs. It saves and loads its state on the way.
func (r *run) resize(a Action) error {
	j := &r.jobs[a.Job]
	if n := count(a.Pieces); j.Max == 0 || n < j.Min || n > j.Max {
		return fmt.Errorf("job %s: resized to %d GPUs: want %d to %d", j.ID, n, j.Min, j.Max)
	}
	j.advance(r.now)
	j.held += float64(j.has()) / unit * (r.now - j.began)
	j.began = r.now
	r.drop(a.Job)
	if err := r.place(a.Job, a.Pieces); err != nil {
		return err
	}
	j.working = true
	r.busy += j.has()
	j.begins = max(j.begins, r.now+2*r.Restart.Seconds(j.GPUs))
	j.saved = j.left
	r.pace(a.Job)
	r.logSpeed(a.Job, EventResize)
	return nil
}
