package gangspec

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// speed reads how fast a gang is by its members: "1:1, 2:1.9, 4:3.5", in any
// order.
func (p *parser) speed() []model.SpeedPoint {
	where, v := p.setting(KeySpeed)
	if where == "" {
		return nil
	}
	var out []model.SpeedPoint
	for entry := range strings.SplitSeq(v, ",") {
		point, problem := readSpeed(strings.TrimSpace(entry))
		if problem == "" && slices.ContainsFunc(out, func(o model.SpeedPoint) bool { return o.Members == point.Members }) {
			problem = fmt.Sprintf("%d members are listed twice", point.Members)
		}
		if problem != "" {
			p.fault(where, KeySpeed, v, problem+`; allowed are speeds by the gang's members, each beside the others, such as "1:1, 2:1.9, 4:3.5"`)
			return nil
		}
		if len(out) == model.MaxSpeedPoints {
			p.fault(where, KeySpeed, v, fmt.Sprintf("allowed are at most %d sizes", model.MaxSpeedPoints))
			return nil
		}
		out = append(out, point)
	}
	slices.SortFunc(out, func(a, b model.SpeedPoint) int { return cmp.Compare(a.Members, b.Members) })
	return out
}

// leastSpeed and mostSpeed bound the speeds, of which only the proportions count.
const leastSpeed, mostSpeed = 1e-6, 1e12

func readSpeed(entry string) (point model.SpeedPoint, problem string) {
	members, rate, ok := strings.Cut(entry, ":")
	if !ok {
		return point, fmt.Sprintf("%q is no MEMBERS:SPEED", entry)
	}
	members, rate = strings.TrimSpace(members), strings.TrimSpace(rate)
	var err error
	if point.Members, err = strconv.Atoi(members); err != nil || point.Members < 1 || point.Members > MaxCount {
		return point, fmt.Sprintf("the members %q are no whole number from 1 to %d", members, MaxCount)
	}
	if point.Rate, err = strconv.ParseFloat(rate, 64); err != nil || !(point.Rate >= leastSpeed && point.Rate <= mostSpeed) {
		return point, fmt.Sprintf("the speed %q is no number above 0 (from 1e-6 to 1e12)", rate)
	}
	return point, ""
}
