package config

import (
	"fmt"
	"strconv"
	"strings"
)

// expand writes out a host list as Slurm and pdsh know it: "gpu-[01-03,7]" is
// gpu-01, gpu-02, gpu-03, gpu-7. A leading zero in a range's start sets the
// width. Several brackets multiply. More than limit names are refused.
func expand(pattern string, limit int) ([]string, error) {
	names := []string{""}
	rest := pattern
	for rest != "" {
		open := strings.IndexByte(rest, '[')
		literal, tail := rest, ""
		if open >= 0 {
			literal, tail = rest[:open], rest[open+1:]
		}
		if strings.IndexByte(literal, ']') >= 0 {
			return nil, fmt.Errorf("a ] without its [")
		}
		for i := range names {
			names[i] += literal
		}
		if open < 0 {
			break
		}
		inside, after, ok := strings.Cut(tail, "]")
		if !ok {
			return nil, fmt.Errorf("a [ without its ]")
		}
		items, err := rangeItems(inside, limit)
		if err != nil {
			return nil, err
		}
		if len(names)*len(items) > limit {
			return nil, fmt.Errorf("it stands for more than %d nodes", limit)
		}
		next := make([]string, 0, len(names)*len(items))
		for _, n := range names {
			for _, item := range items {
				next = append(next, n+item)
			}
		}
		names, rest = next, after
	}
	if len(names) == 0 || names[0] == "" {
		return nil, fmt.Errorf("a node's name must not be empty")
	}
	if len(names) > limit {
		return nil, fmt.Errorf("it stands for more than %d nodes", limit)
	}
	return names, nil
}

// rangeItems reads the inside of a bracket: "01-03,7".
func rangeItems(inside string, limit int) ([]string, error) {
	var items []string
	for part := range strings.SplitSeq(inside, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, errFrom := strconv.ParseUint(low, 10, 32)
		to, errTo := strconv.ParseUint(high, 10, 32)
		if errFrom != nil || errTo != nil {
			return nil, fmt.Errorf("%q in brackets is neither a number nor a range like 01-08", part)
		}
		if from > to {
			return nil, fmt.Errorf("the range %q runs backwards", part)
		}
		if to-from >= uint64(max(limit-len(items), 0)) {
			return nil, fmt.Errorf("it stands for more than %d nodes", limit)
		}
		width := len(low)
		for n := from; n <= to; n++ {
			items = append(items, fmt.Sprintf("%0*d", width, n))
		}
	}
	return items, nil
}
