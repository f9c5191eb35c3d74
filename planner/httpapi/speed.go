package httpapi

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/speed"
)

// Speed is what is known of how fast a job works.
type Speed struct {
	// Text says it for people.
	Text string `json:"text"`
	// Unit is what the rates count, per second: "samples" or "steps"; "" for
	// multiples of what the job declares.
	Unit string `json:"unit,omitempty"`
	// Points are sizes that the job may have, and twice the largest of them.
	Points []SpeedAt `json:"points"`
	// LimitGPUs is from how many GPUs on more of them do nothing, and Limit why.
	LimitGPUs int    `json:"limit_gpus,omitempty"`
	Limit     string `json:"limit,omitempty"`
}

// SpeedAt is a predicted speed.
type SpeedAt struct {
	Members int    `json:"members"`
	GPUs    int    `json:"gpus,omitempty"`
	Model   string `json:"model,omitempty"`
	Level   string `json:"level"`
	// Rate is between Low and High with 95 % probability.
	Rate float64 `json:"rate"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Measurements is how many there are of this very configuration.
	Measurements int `json:"measurements"`
}

// maxPoints bounds how many sizes are told of.
const maxPoints = 24

// SpeedOf is what is known of a job's speed; nil if nothing is.
func SpeedOf(j *model.Job) *Speed {
	curve := speed.New(j.Speed, j.Models)
	if !curve.Known() {
		return nil
	}
	members, each := 0, 0
	for i := range j.Members {
		if !j.Members[i].Ended {
			members++
		}
	}
	count, most := 0, 0
	for i := range j.Groups {
		g := &j.Groups[i]
		count += g.Count
		most += max(g.Count, g.Max)
		if i == 0 {
			for _, d := range g.Devices {
				each += d.Count
			}
		}
	}
	if members == 0 {
		members = count
	}
	at := func(n int) speed.Config { return curve.Sized(n, n*each) }
	limit := curve.Limit()
	out := &Speed{Text: curve.Sentence(at(members), at(2*members)), Unit: curve.Unit(), LimitGPUs: limit.GPUs, Limit: limit.Why}
	sizes := []int{members, count, most, 2 * most}
	for n := 1; n < 2*most && len(sizes) < maxPoints; n *= 2 {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	for _, n := range slices.Compact(sizes) {
		if n < 1 {
			continue
		}
		c := at(n)
		e := curve.At(c)
		out.Points = append(out.Points, SpeedAt{Members: n, GPUs: c.GPUs, Model: c.Model, Level: c.Level.String(), Rate: e.Rate, Low: e.Low(), High: e.High(), Measurements: e.Seen})
	}
	return out
}
