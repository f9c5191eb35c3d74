package sim

// Sample is how the cluster was at one moment, in GPUs.
type Sample struct {
	At                                float64
	Allocated, Busy                   int
	Fillable, Fragmented, Indivisible int
	// Waiting counts the jobs that waited, WaitingGPUs what they asked for.
	Waiting, WaitingGPUs int
}

// samples is how many a run keeps, evenly over [0, T] and the drain after it.
const samples = 1200

// series takes samples while the time passes.
type series struct {
	step, next float64
	list       []Sample
}

// take takes the samples up to a time, during which nothing changed.
func (s *series) take(r *run, to float64) {
	if s.step == 0 {
		return
	}
	for s.next <= to && len(s.list) < 4*samples {
		fillable, fragmented, indivisible := r.ledger.split()
		one := Sample{At: s.next, Allocated: r.allocated / unit, Busy: r.busy / unit, Fillable: fillable, Fragmented: fragmented, Indivisible: indivisible}
		for i, gpus := range r.ledger.sizes {
			one.Waiting += r.ledger.counts[i]
			one.WaitingGPUs += gpus * r.ledger.counts[i]
		}
		if k := r.ledger.kinds; k != nil {
			for _, w := range k.waiting {
				one.Waiting += w.count
				one.WaitingGPUs += w.gpus * w.count
			}
		}
		s.list = append(s.list, one)
		s.next += s.step
	}
}

// Span is that a job had a GPU for a time.
type Span struct {
	// Row is the GPU's number, over all nodes in order.
	Row      int
	From, To float64
	Job      int
}

// span notes that a job gives up what it has.
func (r *run) span(i int) {
	if r.Spans == 0 {
		return
	}
	j := &r.jobs[i]
	for _, p := range j.pieces {
		for _, g := range p.GPUs {
			if row := r.rows[p.Node] + int(g); row < r.Spans {
				r.spans = append(r.spans, Span{row, j.spanned, r.now, i})
			}
		}
	}
}

// Samples are those of the run, in time.
func (o *Outcome) Samples() []Sample { return o.samples }

// Spans are who had which GPU when, of the first GPUs, if they were kept.
func (o *Outcome) Spans() []Span { return o.spans }

// Horizon is T, when the last job was submitted, and End when the last one was
// done, in seconds.
func (o *Outcome) Horizon() float64 { return o.meter.horizon }

// End is when the last job was done.
func (o *Outcome) End() float64 { return o.end }

// Done is what came of one job.
type Done struct {
	ID, Queue, Class               string
	GPUs                           int
	Submit, First, Ended, Duration float64
	Stops                          int
	// Cohort: its completion time counts.
	Cohort bool
}

// Done lists what came of all jobs that were done, in the order of submission.
func (o *Outcome) Done() []Done {
	in := map[*job]bool{}
	for _, j := range o.cohort() {
		in[j] = true
	}
	out := make([]Done, 0, len(o.jobs))
	for i := range o.jobs {
		if j := &o.jobs[i]; j.phase == done {
			out = append(out, Done{j.ID, j.Queue, j.Class, j.GPUs, j.Submit, j.first, j.ended, j.Duration, j.stops, in[j]})
		}
	}
	return out
}
