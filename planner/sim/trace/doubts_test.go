package trace

import (
	"strings"
	"testing"
)

// A trace whose times are of another unit than was said is told by what they are like.
func TestDoubts(t *testing.T) {
	const hour, year = 3600.0, 365.25 * 86400
	tests := map[string]struct {
		median, span float64
		want         string
	}{
		"as on a cluster":       {hour, year, ""},
		"seconds taken as ms":   {hour / 1000, year / 1000, ""},
		"short ones as ms":      {50.0 / 1000, year / 1000, "half of the jobs run for 0.05 s or less"},
		"ms taken as seconds":   {1000 * hour, 1000 * year / 365, "half of the jobs run for 41.7 days or longer"},
		"as minutes, for long":  {60 * hour, 60 * year, "the last job is submitted 60 years after the first"},
		"all of it is too long": {5000 * hour, 60 * year, "half of the jobs run for 208 days or longer; the last job is submitted 60 years after the first"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := NewDescriber()
			for i, duration := range []float64{test.median / 3, test.median, 2 * test.median} {
				d.Add(&Job{Submit: 1e9 + float64(i)*test.span/2, Duration: duration, GPUs: 1})
			}
			s := d.Summary()
			if got := strings.Join(s.Doubts(), "; "); got != test.want {
				t.Errorf("doubts %q: want %q", got, test.want)
			}
		})
	}
	if none := NewDescriber().Summary(); len(none.Doubts()) > 0 {
		t.Errorf("doubts of no job: %q", none.Doubts())
	}
}
