package queue

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/speed"
)

// BenchmarkSizes chooses the sizes of 1000 elastic gangs among 10000 jobs.
func BenchmarkSizes(b *testing.B) {
	s := Situation{GPUs: 131_072}
	for i := range 10_000 {
		e := Entry{Job: &model.Job{ID: fmt.Sprint(i)}, Waiting: true, Asked: 8, Count: 1, GPUsPerMember: 8, Left: Estimate{Known: true, Left: time.Duration(i) * time.Minute}}
		if i%10 == 0 {
			e.Min, e.Max, e.Count = 1, 16, 4
			e = running(e, 4)
			data := &model.Speed{Unit: model.UnitSteps}
			for n := 1; n <= 8; n *= 2 {
				data.Samples = append(data.Samples, model.SpeedSample{Members: n, GPUs: 8 * n, Level: "rack", Rate: math.Pow(float64(n), 0.8), Count: 10, Spread: 0.02})
			}
			e.Speed = speed.New(data, nil)
		}
		s.Jobs = append(s.Jobs, e)
	}
	for name, discipline := range map[string]func(Policy) Discipline{"goodput": newGoodput, "marginal": newMarginal} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				discipline(Policy{}).Stand(s)
			}
		})
	}
}
