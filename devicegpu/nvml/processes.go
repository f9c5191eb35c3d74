package nvml

// Process is one that uses a GPU. A nil pointer means that it is not reported.
type Process struct {
	PID       int
	MemoryMiB *uint64
	// Utilization is in percent of the time, lately.
	Utilization *uint64
}

// ProcessLister is a Source that tells which processes use a GPU.
type ProcessLister interface {
	// Processes lists those that compute on a GPU; known is false if the driver
	// does not tell.
	Processes(uuid string) (list []Process, known bool, err error)
}

// Processes lists those that compute on a GPU of a source; known is false if that
// cannot be told.
func Processes(source Source, uuid string) (list []Process, known bool, err error) {
	if l, ok := source.(ProcessLister); ok {
		return l.Processes(uuid)
	}
	return nil, false, nil
}

// Processes implements ProcessLister.
func (g *guard) Processes(uuid string) ([]Process, bool, error) {
	type answer struct {
		list  []Process
		known bool
	}
	a, err := within(&g.listing, g.limit, func() (answer, error) {
		list, known, err := Processes(g.source, uuid)
		return answer{list, known}, err
	})
	return a.list, a.known, err
}
