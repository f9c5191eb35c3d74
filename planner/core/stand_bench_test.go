package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// BenchmarkStand is what an order costs a decision that looks at more than age:
// ten thousand jobs wait on a small full cluster.
func BenchmarkStand(b *testing.B) {
	for _, order := range []string{queue.OrderFIFO, queue.OrderSJF, queue.OrderLAS, queue.OrderCaravan} {
		b.Run(order, func(b *testing.B) {
			s := draw(b, "b r n aaaa|bbbb")
			for i := range 10000 {
				s.Jobs = append(s.Jobs, model.Job{ID: fmt.Sprint("w", i), Type: "batch", State: model.StateQueued, Submitted: testNow.Add(-time.Duration(i) * time.Minute), Duration: time.Duration(1+i%97) * time.Minute,
					Groups: []model.TaskGroup{{Name: "g", Count: 1, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: 1}}}}})
			}
			p, err := Prepare(s, Policy{Order: order})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				p.Decide(testNow)
			}
		})
	}
}
