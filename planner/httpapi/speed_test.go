package httpapi

import (
	"testing"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestSpeedOf(t *testing.T) {
	job := func(s *model.Speed) *model.Job {
		return &model.Job{Groups: []model.TaskGroup{{Name: "w", Count: 2, Max: 4, Devices: []model.DeviceAsk{{Count: 8}}}}, Speed: s}
	}
	if got := SpeedOf(job(nil)); got != nil {
		t.Errorf("nothing is known: %+v", got)
	}
	declared := SpeedOf(job(&model.Speed{Declared: []model.SpeedPoint{{Members: 1, Rate: 1}, {Members: 2, Rate: 1.9}}}))
	if want := "1.9 times the unit declared with 16 GPUs, give or take 22 %, as declared; 3.61 times the unit declared with 32 GPUs, give or take 43 %"; declared.Text != want {
		t.Errorf("declared: %q, want %q", declared.Text, want)
	}
	measured := &model.Speed{Unit: "samples", Samples: []model.SpeedSample{
		{Members: 1, GPUs: 8, Level: "node", Rate: 1000, Count: 20, Spread: 0.02}, {Members: 2, GPUs: 16, Level: "rack", Rate: 1900, Count: 20, Spread: 0.02},
		{Members: 4, GPUs: 32, Level: "rack", Rate: 1910, Count: 20, Spread: 0.02}}}
	got := SpeedOf(job(measured))
	if want := "1899 samples/s with 16 GPUs, give or take 1 % (20 measurements); 1910 samples/s with 32 GPUs, give or take 1 % (20 measurements); 32 GPUs are no faster than 16 (1910 and 1900 samples/s)"; got.Text != want {
		t.Errorf("measured: %q, want %q", got.Text, want)
	}
	var sizes []int
	for _, p := range got.Points {
		sizes = append(sizes, p.Members)
		if !(p.Low < p.Rate && p.Rate < p.High) || p.Rate > 2000 {
			t.Errorf("point %+v", p)
		}
	}
	if len(sizes) != 4 || sizes[3] != 8 || got.LimitGPUs != 16 || got.Unit != "samples" {
		t.Errorf("%v, %+v", sizes, got)
	}
}
