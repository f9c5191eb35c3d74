package sim

import (
	"reflect"
	"strings"
)

// numbers are the metrics that are one number, by their names in the JSON. What is
// measured by the real clock is left out: it differs from run to run.
func (m *Metrics) numbers() map[string]float64 {
	out := map[string]float64{}
	v := reflect.ValueOf(*m)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch f := v.Field(i); {
		case name == "decide_mean_us" || name == "decide_event_us":
		case f.Kind() == reflect.Float64:
			out[name] = f.Float()
		case f.Kind() == reflect.Int:
			out[name] = float64(f.Int())
		}
	}
	return out
}

// Number is a metric by its name in the JSON; 0 if there is none of that name.
func (m *Metrics) Number(name string) float64 {
	switch name {
	case "decide_mean_us":
		return m.DecideMean
	case "decide_event_us":
		return m.DecideEvent
	}
	return m.numbers()[name]
}
