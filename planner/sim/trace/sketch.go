package trace

import (
	"hash/fnv"
	"math"
	"slices"
)

// exactly is of how many values quantiles are exact; of more they are within
// sketchError of themselves.
const (
	exactly     = 1 << 20
	sketchError = 0.001
)

// sketchGrowth is by what the bounds of a bucket differ, and leastSketched the largest
// value that the first bucket has, in seconds.
const (
	sketchGrowth  = (1 + sketchError) / (1 - sketchError)
	leastSketched = 1e-6
)

// quantiles are those of any number of values, in bounded memory: the values
// themselves, or, once there are too many, how many lie between bounds that grow by a
// factor (DDSketch: Masson, Rim and Lee, VLDB'19).
type quantiles struct {
	n      int
	values []float64
	counts []int // nil: values has all
}

func (q *quantiles) add(x float64) {
	q.n++
	if q.counts != nil {
		q.counts[bucket(x)]++
		return
	}
	q.values = append(q.values, x)
	if len(q.values) <= exactly {
		return
	}
	q.counts = make([]int, bucket(maxSeconds)+1)
	for _, x := range q.values {
		q.counts[bucket(x)]++
	}
	q.values = nil
}

// bucket is the one that a value above 0, at most maxSeconds, is in.
func bucket(x float64) int {
	return max(0, int(math.Ceil(math.Log(x/leastSketched)/math.Log(sketchGrowth))))
}

// at is the smallest value that at least a part of all does not exceed.
func (q *quantiles) at(part float64) float64 {
	if q.counts == nil {
		slices.Sort(q.values)
		return quantile(q.values, part)
	}
	left := max(int(math.Ceil(part*float64(q.n))), 1)
	for k, n := range q.counts {
		if left -= n; left <= 0 {
			return leastSketched * math.Pow(sketchGrowth, float64(k)) * 2 / (1 + sketchGrowth)
		}
	}
	return 0
}

// wrong is by what part of them quantiles may be wrong.
func (q *quantiles) wrong() float64 {
	if q.counts == nil {
		return 0
	}
	return sketchError
}

// quantile is the smallest of sorted values that at least a part of them does
// not exceed.
func quantile(sorted []float64, part float64) float64 {
	at := int(math.Ceil(part*float64(len(sorted)))) - 1
	return sorted[max(0, min(at, len(sorted)-1))]
}

// keptHashes is how many names are counted exactly. Of more the smallest so many
// hashes tell how many there are (Bar-Yossef et al., Counting Distinct Elements in a
// Data Stream, RANDOM'02).
const keptHashes = 1 << 14

// distinct counts the names that are not alike, in bounded memory.
type distinct struct {
	seen map[uint64]struct{}
	// limit is above the hashes that are kept; 0: all are.
	limit uint64
}

func (d *distinct) add(name string) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash never fails
	x := mix(h.Sum64())
	if d.limit != 0 && x >= d.limit {
		return
	}
	if d.seen[x] = struct{}{}; len(d.seen) < 2*keptHashes {
		return
	}
	all := d.sorted()
	d.limit = all[keptHashes]
	for _, x := range all[keptHashes:] {
		delete(d.seen, x)
	}
}

func (d *distinct) sorted() []uint64 {
	all := make([]uint64, 0, len(d.seen))
	for x := range d.seen {
		all = append(all, x)
	}
	slices.Sort(all)
	return all
}

// count is how many there are, and the standard error, as a part of it.
func (d *distinct) count() (n int, wrong float64) {
	if d.limit == 0 {
		return len(d.seen), 0
	}
	part := float64(d.limit) / math.Exp2(64) // of all hashes, those below it are kept
	return int(math.Round(float64(len(d.seen)) / part)), 1 / math.Sqrt(float64(len(d.seen)))
}

// mix spreads a number's bits: the end of splitmix64 (Steele, Lea and Flood, OOPSLA'14).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
