package exec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxCPU is the highest CPU number that a set of the kernel's interface holds.
const maxCPU = 1023

// ParseCPUs reads the kernel's list form of CPUs ("0-3,8"): sorted, each once.
// The empty list has none.
func ParseCPUs(list string) ([]int, error) {
	list = strings.TrimSpace(list)
	if list == "" {
		return nil, nil
	}
	var cpus []int
	for _, part := range strings.Split(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		from, err := parseCPU(first)
		if err != nil {
			return nil, err
		}
		to, err := parseCPU(last)
		if err != nil {
			return nil, err
		}
		if from > to {
			return nil, fmt.Errorf("range %q runs backwards", part)
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

func parseCPU(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, errors.New(`is not a list of CPUs; allowed is the form "0-3,8"`)
	}
	if n > maxCPU {
		return 0, fmt.Errorf("CPU %d is too high; at most %d", n, maxCPU)
	}
	return int(n), nil
}

// FormatCPUs writes sorted CPUs in the kernel's list form.
func FormatCPUs(cpus []int) string {
	var parts []string
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		part := strconv.Itoa(cpus[i])
		if j > i {
			part += "-" + strconv.Itoa(cpus[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// intersect keeps what is in both; both are sorted.
func intersect(a, b []int) []int {
	var both []int
	for _, cpu := range a {
		if _, ok := slices.BinarySearch(b, cpu); ok {
			both = append(both, cpu)
		}
	}
	return both
}

// allowedCPUs are those that the calling process may run on.
func allowedCPUs() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	var cpus []int
	for cpu := range maxCPU + 1 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}
