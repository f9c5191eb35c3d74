package topology

import (
	"os"
	"testing"
)

func benchMatrix(b *testing.B) Matrix {
	b.Helper()
	data, err := os.ReadFile("testdata/cube-mesh.txt")
	if err != nil {
		b.Fatal(err)
	}
	f, err := Parse(data)
	if err != nil {
		b.Fatal(err)
	}
	return withUUIDs(f.Matrix)
}

// BenchmarkDecode is what one node costs a planner that starts.
func BenchmarkDecode(b *testing.B) {
	s, err := Encode(benchMatrix(b))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(s)), "chars")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOrder(b *testing.B) {
	m := benchMatrix(b)
	b.ReportAllocs()
	for b.Loop() {
		m.Order([]int{0, 1, 2, 3, 4, 5, 6, 7})
	}
}
