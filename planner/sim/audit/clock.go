package audit

import "slices"

// clock adds up over time what all jobs together have, wait for and leave free.
type clock struct {
	// horizon is T, when the last job is submitted.
	horizon float64
	perNode int
	nodes   []Node
	// unused are the free GPUs by node, 0 where it is down; histogram counts the
	// nodes by them.
	unused    []int
	histogram []int
	down      []bool
	// held, working and total count GPUs: somebody's, those of whole gangs, free.
	held, working float64
	total         int
	// forms are of the GPUs that may be in parts, and at is the node of each; wholes
	// counts those of a node that are whole. asking counts the jobs that wait for a
	// part.
	forms  []form
	at     []int
	wholes []int
	asking int
	// queue counts the jobs that wait by the GPUs that they ask for.
	queue map[int]int
	// wishes counts those that wait for some models.
	wishes map[wish]int
	// split is kept while nothing changes.
	split   [3]float64
	current bool
	present int

	// The integrals, in GPU-seconds until T; heldAlways goes on after it.
	allocated, engaged, useless float64
	parts                       [3]float64
	loose                       float64 // free of GPUs that are in parts
	heldAlways, presence        float64
	// rented counts the GPUs of bought nodes that are up, renting is over time until T.
	rented  int
	renting float64
	// sizes are what any job asks for, scattered for how long so many GPUs were
	// free with no place for a gang; members are how often one asks a node for so
	// many.
	sizes     []int
	scattered map[int]float64
	members   []float64
	counted   map[*tracked]float64
	queued    map[*tracked]bool
}

func newClock(nodes []Node, lines []numbered) clock {
	k := clock{nodes: nodes, queue: map[int]int{}, wishes: map[wish]int{}, scattered: map[int]float64{}, counted: map[*tracked]float64{}, queued: map[*tracked]bool{}, down: make([]bool, len(nodes))}
	for i, n := range nodes {
		able, whole := n.wholes()
		k.perNode, k.wholes = max(1, k.perNode, able), append(k.wholes, whole)
		if k.down[i] = n.Bought; n.Bought {
			k.unused = append(k.unused, 0)
			continue
		}
		k.total += whole
		k.unused = append(k.unused, whole)
	}
	k.histogram = make([]int, k.perNode+1)
	for _, unused := range k.unused {
		k.histogram[unused]++
	}
	k.members = make([]float64, k.perNode+1)
	for i := range lines {
		l := &lines[i].line
		if l.Event != "submit" || l.Asks == nil {
			continue
		}
		k.horizon = max(k.horizon, l.Time)
		if n := l.Asks.GPUs; n > 0 && k.perNode > 0 {
			k.sizes = append(k.sizes, n)
			k.members[k.perNode] += float64(n / k.perNode)
			if n%k.perNode > 0 {
				k.members[n%k.perNode]++
			}
		}
	}
	slices.Sort(k.sizes)
	k.sizes = slices.Compact(k.sizes)
	return k
}

// free changes how many GPUs of a node are free.
func (k *clock) free(node, change int) {
	k.held -= float64(change)
	// A log that says the impossible would make it more, or less, than there is.
	if now := k.unused[node] + change; !k.down[node] && now >= 0 && now < len(k.histogram) {
		k.set(node, now)
	}
}

func (k *clock) set(node, unused int) {
	k.histogram[k.unused[node]]--
	k.total += unused - k.unused[node]
	k.unused[node] = unused
	k.histogram[unused]++
	k.current = false
}

func (k *clock) node(node int, down bool) {
	k.down[node] = down
	gpus := k.nodes[node].GPUs
	if down {
		k.set(node, 0)
		gpus = -gpus
	} else {
		k.set(node, k.wholes[node])
	}
	if k.nodes[node].Bought {
		k.rented += gpus
	}
}

func (k *clock) enter(j *tracked) {
	k.present++
	j.apart, j.there = k.scattered[j.asks.GPUs], k.presence
	k.wait(j)
}

func (k *clock) start(j *tracked) { j.apart = k.scattered[j.asks.GPUs] - j.apart }

func (k *clock) leave(j *tracked) {
	k.present--
	j.there = k.presence - j.there
}

func (k *clock) wait(j *tracked) {
	k.queued[j] = true
	k.line(j, 1)
}

// line notes that one job more, or less, waits. Who asks for an instance does not wait
// for whole GPUs.
func (k *clock) line(j *tracked, change int) {
	if j.Share > 0 {
		k.asking += change
	}
	if j.Profile != "" {
		return
	}
	k.current = false
	if j.Models != "" {
		w := wish{j.asks.GPUs, j.Models}
		if k.wishes[w] += change; k.wishes[w] == 0 {
			delete(k.wishes, w)
		}
		return
	}
	if k.queue[j.asks.GPUs] += change; k.queue[j.asks.GPUs] == 0 {
		delete(k.queue, j.asks.GPUs)
	}
}

// hold notes that more, or less, of a GPU is somebody's.
func (k *clock) hold(change float64) { k.held += change }

// idle takes a job out of those that work, busy puts it there, if it runs.
func (k *clock) idle(j *tracked) {
	k.working -= k.counted[j]
	delete(k.counted, j)
}

func (k *clock) busy(j *tracked) {
	if k.queued[j] {
		delete(k.queued, j)
		k.line(j, -1)
	}
	if j.state == runs {
		k.working += j.has()
		k.counted[j] = j.has()
	}
}

// pass adds the time up to another one, during which nothing changed.
func (k *clock) pass(c *checker, to float64) {
	span := to - c.now
	if span <= 0 {
		return
	}
	k.heldAlways += k.held * span
	k.presence += float64(k.present) * span
	for _, n := range k.sizes {
		if n <= k.total && !k.place(slices.Clone(k.histogram), n) {
			k.scattered[n] += span
		}
	}
	if span = min(to, k.horizon) - c.now; span <= 0 {
		return
	}
	k.renting += float64(k.rented) * span
	k.allocated += k.held * span
	k.engaged += k.working * span
	k.useless += k.fgd() * span
	if k.asking > 0 {
		k.loose += k.rests() * span
	}
	if !k.current {
		k.split, k.current = k.divide(), true
	}
	for i := range k.parts {
		k.parts[i] += k.split[i] * span
	}
}

// fgd is how many free GPUs are of no use to a member drawn from the trace.
func (k *clock) fgd() float64 {
	all, sum := 0.0, 0.0
	for asks, n := range k.members {
		all += n
		for unused, nodes := range k.histogram[:asks] {
			sum += n * float64(unused*nodes)
		}
	}
	if all == 0 {
		return 0
	}
	return sum / all
}

// divide splits the free GPUs while somebody waits: fillable, fragmented and
// indivisible.
func (k *clock) divide() [3]float64 {
	if len(k.wishes) > 0 {
		return k.divideByModel()
	}
	if len(k.queue) == 0 || k.total == 0 {
		return [3]float64{}
	}
	now := k.fill(k.histogram)
	compact := make([]int, k.perNode+1)
	compact[k.perNode] = k.total / k.perNode
	if rest := k.total % k.perNode; rest > 0 {
		compact[rest] = 1
	}
	best := max(now, k.fill(compact))
	return [3]float64{float64(now), float64(best - now), float64(k.total - best)}
}

// fill packs the waiting gangs, the smallest first and again the largest first,
// and says how many GPUs they get in the better way.
func (k *clock) fill(histogram []int) int {
	return max(k.fillIn(slices.Clone(histogram), false), k.fillIn(slices.Clone(histogram), true))
}

// fillIn packs them in one order.
func (k *clock) fillIn(left []int, descending bool) (got int) {
	sizes := make([]int, 0, len(k.queue))
	for n := range k.queue {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	if descending {
		slices.Reverse(sizes)
	}
	for _, n := range sizes {
		for count := k.queue[n]; count > 0 && k.place(left, n); count-- {
			got += n
		}
	}
	return got
}

// place takes what a gang asks for from a histogram of free GPUs: whole nodes,
// and the rest from the node with the fewest that suffice. False, and the
// histogram is as it was, if it does not fit.
func (k *clock) place(histogram []int, gpus int) bool {
	return k.placeBy(histogram, k.perNode, gpus)
}

// placeBy is place of a gang with so many GPUs on each node that it fills.
func (k *clock) placeBy(histogram []int, most, gpus int) bool {
	whole, rest := gpus/most, gpus%most
	if histogram[most] < whole {
		return false
	}
	histogram[most] -= whole
	if rest == 0 {
		return true
	}
	for unused := rest; unused <= most; unused++ {
		if histogram[unused] > 0 {
			histogram[unused]--
			histogram[unused-rest]++
			return true
		}
	}
	histogram[most] += whole
	return false
}
