package trace

import "fmt"

// What the times of clusters are like: hardly any has jobs of which half take less than a
// second, or longer than a month, or was watched for ten years.
const (
	leastMedian = 1.0
	mostMedian  = 30 * day
	mostDays    = 10 * 365.25
)

// Doubts are what times there are that hardly can be, each with its number: they may be in
// another unit than was said.
func (s *Summary) Doubts() (lines []string) {
	if s.Jobs == 0 {
		return nil
	}
	switch {
	case s.DurationP50 < leastMedian:
		lines = append(lines, fmt.Sprintf("half of the jobs run for %.3g s or less", s.DurationP50))
	case s.DurationP50 > mostMedian:
		lines = append(lines, fmt.Sprintf("half of the jobs run for %.3g days or longer", s.DurationP50/day))
	}
	if s.Days > mostDays {
		lines = append(lines, fmt.Sprintf("the last job is submitted %.3g years after the first", s.Days/365.25))
	}
	return lines
}
