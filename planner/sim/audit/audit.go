package audit

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Input is what is checked.
type Input struct {
	Events io.Reader
	Nodes  []Node
	// Trace are the jobs that were to be played; nil: it is not known. Replay:
	// exactly these, rather than days drawn from them, whose jobs have a number
	// behind their names.
	Trace  []Job
	Replay bool
	// Estimates are how long jobs were thought to run; nil: it is not known.
	Estimates *Estimates
	// Unsaved are the jobs that save nothing; nil: it is not known which.
	Unsaved *Unsaved
}

// Report is what was found.
type Report struct {
	Events int `json:"events"`
	// Faults are what cannot be, the first of them in words and with their lines.
	Faults     []string `json:"faults"`
	FaultCount int      `json:"fault_count"`
	// Done, Submitted, Lost and Left are work in GPU-hours: what the jobs have done,
	// were to do, did in vain, and had not done when the log ends. What was done is
	// what was submitted and lost, less what is left.
	Done      float64 `json:"work_done_gpu_h"`
	Submitted float64 `json:"work_submitted_gpu_h"`
	Lost      float64 `json:"work_lost_gpu_h"`
	Left      float64 `json:"work_left_gpu_h"`
	// Metrics are by their names in the results of `simulate --json`.
	Metrics map[string]float64 `json:"metrics"`
	Sizes   []Part             `json:"by_size"`
	Queues  []Part             `json:"by_queue"`
	// Noise is nil where nobody was told how long a job runs.
	Noise *Noise `json:"estimates,omitempty"`
}

// Part are some jobs of the cohort.
type Part struct {
	Name     string  `json:"name"`
	Jobs     int     `json:"jobs"`
	JCTMean  float64 `json:"jct_mean_s"`
	JCTP99   float64 `json:"jct_p99_s"`
	QueueP95 float64 `json:"queue_p95_s"`
	// These are of queues alone.
	QueueMean    float64 `json:"queue_mean_s,omitempty"`
	GPUHours     float64 `json:"gpu_hours,omitempty"`
	Preemptions  int     `json:"preemptions,omitempty"`
	FairnessMean float64 `json:"finish_time_fairness_mean,omitempty"`
}

// maxFaults is how many faults are told in words.
const maxFaults = 20

// state is where a job is.
type state uint8

const (
	waits state = iota
	holds       // some members have GPUs, and wait for the others
	runs
	ended
)

// member is one job, as far as the log has come.
type tracked struct {
	asks
	id    string
	state state
	gpus  []int // by number
	part  int   // of the one that it has, from 1; 0: all of it
	speed float64
	since float64 // of speed and gpus
	// work is what was done, in seconds at the best speed, lost what of it was
	// lost; kept is work less lost until T.
	work, lost, kept float64
	submitted        float64
	started, over    float64 // -1: not yet
	asked, again     float64
	stops            int
	apart, there     float64 // what the clock showed at the submission, then the difference
	had              float64 // GPU-seconds
	booting, booted  float64 // how long nodes bought for it boot while it waits, and until when
}

// checker goes through a log.
type checker struct {
	report Report
	nodes  []Node
	// number is of a GPU by its name, at the node it is of, owner who has it.
	number map[string]int
	at     []int
	owner  []*tracked
	forms  []form         // by GPU
	byName map[string]int // of nodes
	down   []bool
	jobs   map[string]*tracked
	order  []*tracked
	now    float64
	line   int
	clock  clock
}

// Check goes through a log. An error is of a log that is none; what a log says
// that cannot be is in the report.
func Check(in Input) (*Report, error) {
	c := checker{nodes: in.Nodes, number: map[string]int{}, byName: map[string]int{}, jobs: map[string]*tracked{}}
	for i, n := range in.Nodes {
		c.byName[n.Name] = i
		for g := range n.GPUs {
			c.number[fmt.Sprintf("%s:%d", n.Name, g)] = len(c.at)
			c.at = append(c.at, i)
			c.forms = append(c.forms, formOf(&in.Nodes[i], g))
		}
	}
	c.owner, c.down = make([]*tracked, len(c.at)), make([]bool, len(in.Nodes))
	for i, n := range in.Nodes {
		c.down[i] = n.Bought
	}
	var lines []numbered
	if err := read(in.Events, func(number int, l *line) error {
		lines = append(lines, numbered{number, *l})
		return nil
	}); err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%w: there are none", ErrEvents)
	}
	c.clock = newClock(in.Nodes, lines)
	c.clock.forms, c.clock.at = c.forms, c.at
	for i := range lines {
		c.step(lines[i].number, &lines[i].line)
	}
	c.finish(in)
	return &c.report, nil
}

type numbered struct {
	number int
	line   line
}

func (c *checker) fault(format string, args ...any) {
	c.report.FaultCount++
	if len(c.report.Faults) < maxFaults {
		c.report.Faults = append(c.report.Faults, fmt.Sprintf("line %d: ", c.line)+fmt.Sprintf(format, args...))
	}
}

// step takes one event.
func (c *checker) step(number int, l *line) {
	c.report.Events++
	c.line = number
	if l.Time < c.now {
		c.fault("it is at %g s, after one at %g s", l.Time, c.now)
	} else {
		c.clock.pass(c, l.Time)
		c.now = l.Time
	}
	switch l.Event {
	case "submit":
		c.submit(l)
		return
	case "down", "up":
		c.node(l)
		return
	case "divide", "divided":
		c.divide(l)
		return
	}
	j := c.jobs[l.Job]
	switch {
	case j == nil:
		c.fault("%s of %q, which was never submitted", l.Event, l.Job)
	case j.state == ended:
		c.fault("%s of %q, which has finished", l.Event, l.Job)
	case l.Event == "rent":
		if j.started >= 0 || l.Until < c.now {
			c.fault("nodes are bought for %q until %g s, and it has started or they are there already", j.id, l.Until)
		}
		j.booting += max(0, l.Until-max(c.now, j.booted))
		j.booted = max(j.booted, l.Until)
	default:
		c.change(j, l)
	}
}

func (c *checker) submit(l *line) {
	switch a := l.Asks; {
	case c.jobs[l.Job] != nil:
		c.fault("%q is submitted again", l.Job)
	case a == nil:
		c.fault("%q is submitted, and it is not said what it asks for", l.Job)
	case a.GPUs < 1 || a.GPUs > len(c.at) || !(a.Duration > 0) || !(a.Estimate >= 0) || a.Max != 0 && (a.Min < 1 || a.Min > a.GPUs || a.Max < a.GPUs), a.Share != 0 && !(a.Share > 0 && a.Share <= 1 && a.GPUs == 1), a.Profile != "" && a.Share == 0:
		c.fault("%q asks for %d GPUs (%d to %d) for %g s on a cluster of %d", l.Job, a.GPUs, a.Min, a.Max, a.Duration, len(c.at))
	case a.Unsaved && a.Max != 0:
		c.fault("%q has %d to %d GPUs, and saves nothing: who changes its size has to save", l.Job, a.Min, a.Max)
	default:
		j := &tracked{asks: *a, id: l.Job, submitted: c.now, asked: c.now, started: -1, over: -1}
		c.jobs[l.Job] = j
		c.order = append(c.order, j)
		c.clock.enter(j)
	}
}

func (c *checker) node(l *line) {
	n, known := c.byName[l.Node]
	if !known {
		c.fault("node %q %s: there is no such node", l.Node, l.Event)
		return
	}
	if c.down[n] == (l.Event == "down") {
		c.fault("node %q %s, and it was so before", l.Node, l.Event)
	}
	if l.Event == "down" {
		for g, at := range c.at {
			if at == n && c.user(g) != nil {
				c.fault("node %q is down, and %q still has GPUs there", l.Node, c.user(g).id)
				break
			}
		}
	}
	c.down[n] = l.Event == "down"
	c.clock.node(n, c.down[n])
}

// change takes an event of a job that is there.
func (c *checker) change(j *tracked, l *line) {
	c.work(j)
	gpus, part := c.find(l)
	switch l.Event {
	case "stop", "fail", "finish":
		c.release(j, l, gpus, part)
		return
	case "start":
		if j.state == runs {
			c.fault("%q starts, and it runs already", j.id)
		}
	case "resize":
	default:
		c.fault("event %q: want submit, start, stop, resize, finish, fail, down, up, rent, divide or divided", l.Event)
		return
	}
	c.onModels(j, gpus)
	c.take(j, gpus, part)
	if l.Event == "start" {
		if j.started < 0 {
			j.started = c.now
			j.booting -= max(0, j.booted-c.now)
			c.clock.start(j)
			j.apart = min(j.apart, j.started-j.submitted-j.booting)
		} else {
			j.again += c.now - j.asked
		}
		j.state = runs
	} else if j.state == waits {
		j.state = holds
	}
	least, most := j.GPUs, j.GPUs
	if j.Max > 0 {
		least, most = j.Min, j.Max
	}
	n := len(gpus)
	switch {
	case j.state == runs && (n < least || n > most):
		c.fault("%q runs on %d GPUs: it asks for %d to %d", j.id, n, least, most)
	case j.state == holds && (n < 1 || n >= j.GPUs):
		c.fault("%q waits with %d GPUs for others: it asks for %d", j.id, n, j.GPUs)
	case j.state == holds && l.Speed != 0:
		c.fault("%q works at speed %g, and not all of its members have GPUs", j.id, l.Speed)
	case j.state == runs && j.Unsaved && l.Speed == 0:
		c.fault("%q has its GPUs and does not work: it saves nothing, and has nothing to load", j.id)
	case l.Lost != 0:
		c.fault("%s of %q loses %g s of work, and it keeps its GPUs", l.Event, j.id, l.Lost)
	case !(l.Speed >= 0 && l.Speed <= float64(n)/float64(j.GPUs)*(1+1e-9)):
		c.fault("%q works at speed %g on %d GPUs: it asks for %d", j.id, l.Speed, n, j.GPUs)
	}
	j.speed = l.Speed
	c.clock.busy(j)
}

// work adds what a job has done since its last event.
func (c *checker) work(j *tracked) {
	j.work += j.speed * (c.now - j.since)
	j.had += j.has() * (c.now - j.since)
	j.kept += j.speed * max(0, min(c.now, c.clock.horizon)-min(j.since, c.clock.horizon))
	j.since = c.now
}

// find finds the GPUs that an event names, or the part of one.
func (c *checker) find(l *line) (out []int, part int) {
	for _, name := range l.GPUs {
		gpu, number, isPart := strings.Cut(name, "/")
		if n, err := strconv.Atoi(number); isPart && (err != nil || n < 1 || len(l.GPUs) > 1) {
			c.fault("%q: want the number of one part of one GPU behind the /", name)
		} else {
			part = n
		}
		if g, known := c.number[gpu]; known {
			out = append(out, g)
		} else {
			c.fault("there is no GPU %q", name)
		}
	}
	slices.Sort(out)
	if once := slices.Compact(slices.Clone(out)); len(once) != len(out) {
		c.fault("%q has a GPU twice: %s", l.Job, strings.Join(l.GPUs, ", "))
		return once, part
	}
	return out, part
}

// release takes a job's GPUs away for good, or until it starts again.
func (c *checker) release(j *tracked, l *line, gpus []int, part int) {
	if j.state == waits {
		c.fault("%s of %q, which has no GPU", l.Event, j.id)
	}
	if !slices.Equal(gpus, j.gpus) || part != j.part {
		c.fault("%s of %q names %d GPUs: it has others, %d", l.Event, j.id, len(gpus), len(j.gpus))
	}
	c.loses(j, l)
	c.take(j, nil, 0)
	j.lost += l.Lost
	if c.now < c.clock.horizon {
		j.kept -= l.Lost
	}
	was := j.state
	j.state, j.speed = waits, 0
	if was == runs {
		j.asked = c.now
	}
	if was == runs && l.Event == "stop" {
		j.stops++
	}
	if l.Event != "finish" {
		c.clock.wait(j)
		return
	}
	if was != runs {
		c.fault("%q finishes, and it did not run", j.id)
	}
	if off := j.work - j.lost - j.Duration; !near(j.work-j.lost, j.Duration) {
		c.fault("%q finishes having done %g s of work more than it has: %g done, %g lost, %g to do", j.id, off, j.work, j.lost, j.Duration)
	}
	j.state, j.over = ended, c.now
	c.clock.leave(j)
}

// near allows for what is lost when times are added up.
func near(a, b float64) bool { return abs(a-b) <= 1e-6*max(1, abs(a), abs(b)) }

func abs(x float64) float64 { return max(x, -x) }

// finish looks at what is left, and sums up.
func (c *checker) finish(in Input) {
	for _, j := range c.order {
		if j.state != ended {
			c.work(j)
			if near(j.work-j.lost, j.Duration) {
				c.fault("the log ends, and %q, which has done all of its work, never finished", j.id)
			}
		}
		if len(j.gpus) > 0 {
			c.fault("the log ends, and %q still has %d GPUs", j.id, len(j.gpus))
		}
	}
	if in.Trace != nil {
		c.compare(in)
	}
	c.estimates(in.Estimates)
	c.unsaved(in.Unsaved)
	for _, j := range c.order {
		c.report.Done += j.work * j.asks.width() / 3600
		c.report.Submitted += j.Duration * j.asks.width() / 3600
		if j.state != ended {
			c.report.Left += (j.Duration - j.work + j.lost) * j.asks.width() / 3600
		}
		c.report.Lost += j.lost * j.asks.width() / 3600
	}
	c.measure()
}
