package sim

import "math"

// Interval is a mean with the bounds of its 95 % confidence interval.
type Interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Of computes the interval of some values by Student's t. One value has no
// spread that could be known: its bounds are itself.
func Of(values []float64) Interval {
	n := len(values)
	if n == 0 {
		return Interval{}
	}
	m := mean(values)
	if n == 1 {
		return Interval{m, m, m}
	}
	sum := 0.0
	for _, v := range values {
		sum += (v - m) * (v - m)
	}
	half := student(n-1) * math.Sqrt(sum/float64(n-1)/float64(n))
	return Interval{m, m - half, m + half}
}

// Paired is the interval of the differences between values of the same seeds.
func Paired(a, b []float64) Interval {
	d := make([]float64, min(len(a), len(b)))
	for i := range d {
		d[i] = a[i] - b[i]
	}
	return Of(d)
}

// student is the 97.5 % quantile of Student's t with so many degrees of freedom.
func student(df int) float64 {
	table := [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}
	if df <= len(table) {
		return table[df-1]
	}
	return 1.96 + 2.4/float64(df) // within 0.2 % from 30 on
}
