package preempt

// option is a place, by its index, and the least that room there can cost.
type option struct {
	bound int64
	place int
}

func (o option) before(p option) bool {
	return o.bound < p.bound || o.bound == p.bound && o.place < p.place
}

// options are a heap: of very many only the cheapest few are looked at, so that
// sorting them would cost more than all the rest.
type options []option

// order makes the heap.
func (o options) order() {
	for i := len(o)/2 - 1; i >= 0; i-- {
		o.sink(i)
	}
}

// next takes out the one with the least bound, the first of equals.
func (o *options) next() option {
	h := *o
	least := h[0]
	h[0] = h[len(h)-1]
	*o = h[:len(h)-1]
	o.sink(0)
	return least
}

func (o options) sink(i int) {
	for {
		least := i
		for _, kid := range [2]int{2*i + 1, 2*i + 2} {
			if kid < len(o) && o[kid].before(o[least]) {
				least = kid
			}
		}
		if least == i {
			return
		}
		o[i], o[least] = o[least], o[i]
		i = least
	}
}
