package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/mig"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// maxDevices is how many devices a node offers at most: as many as the planner keeps
// apart, and the device plugin lists.
const maxDevices = 64

// checkParts checks what a block says of parts of GPUs.
func (f *fileNodes) checkParts(add func(key string, value any, allowed string)) {
	geometry, divisible := mig.Of(models[f.Model])
	_, known := models[f.Model]
	if f.MIG != nil && *f.MIG != "auto" && *f.MIG != "fixed" {
		add("mig", fmt.Sprintf("%q", *f.MIG), `"auto" or "fixed"`)
	}
	if known && !divisible && (f.MIG != nil && *f.MIG == "auto" || len(f.Instances) > 0) {
		key := "instances"
		if f.MIG != nil {
			key = "mig"
		}
		add(key, fmt.Sprintf("of a %s", f.Model), "it with a model that has MIG: "+strings.Join(divisibles(), ", "))
		return
	}
	seen := map[int]bool{}
	for _, text := range f.Instances {
		gpu, names, ok := instancesOf(text)
		switch {
		case !ok || gpu < 0 || gpu >= f.GPUs:
			add("instances", fmt.Sprintf("%q", text), fmt.Sprintf(`a GPU from 0 to %d and its profiles, such as "0:3g.40gb,3g.40gb"`, f.GPUs-1))
		case seen[gpu]:
			add("instances", fmt.Sprintf("%q", text), "each GPU once")
		case divisible && !geometry.Fits(names):
			add("instances", fmt.Sprintf("%q", text), "profiles that fit on one GPU, of "+strings.Join(profileNames(geometry), ", "))
		}
		seen[gpu] = true
	}
	if len(f.Sharing) > 1 {
		add(keySharing, len(f.Sharing), "one block at most")
	}
	for _, s := range f.Sharing {
		if s.Slices < 2 || s.Slices > model.MaxSlices {
			add(keySharing, fmt.Sprintf("%d slices", s.Slices), fmt.Sprintf("slices from 2 to %d", model.MaxSlices))
		}
		if s.Count != nil && (*s.Count < 0 || *s.Count > f.GPUs) {
			add(keySharing, fmt.Sprintf("%d GPUs (count)", *s.Count), fmt.Sprintf("0 (all) to %d", f.GPUs))
		}
		if len(f.Instances) > 0 || f.MIG != nil && *f.MIG == "auto" {
			add(keySharing, "set beside mig or instances", "one of them in a block: shared GPUs are not divided")
		}
	}
	devices := 0
	for _, m := range f.modes() {
		n := max(1, m.slices, len(m.profiles))
		if m.auto {
			n = max(n, geometry.Compute)
		}
		devices += n
	}
	if f.GPUs >= 1 && f.GPUs <= 64 && devices > maxDevices {
		add("gpus", fmt.Sprintf("%d, with %d slices and instances", f.GPUs, devices), fmt.Sprintf("at most %d of them and whole GPUs on a node", maxDevices))
	}
}

// modes are how the GPUs of a block's nodes are offered; nil: as a whole.
func (f *fileNodes) modes() []gpuMode {
	auto := f.MIG != nil && *f.MIG == "auto"
	if !auto && len(f.Instances) == 0 && len(f.Sharing) == 0 || f.GPUs < 1 || f.GPUs > 64 {
		return nil
	}
	out := make([]gpuMode, f.GPUs)
	for i := range out {
		out[i].auto = auto
	}
	for _, text := range f.Instances {
		if gpu, names, ok := instancesOf(text); ok && gpu >= 0 && gpu < len(out) {
			out[gpu].profiles = names
		}
	}
	for _, s := range f.Sharing {
		count := len(out)
		if s.Count != nil && *s.Count > 0 {
			count = min(count, *s.Count)
		}
		for i := len(out) - count; i < len(out); i++ {
			out[i].slices = s.Slices
		}
	}
	return out
}

// instancesOf reads "0:3g.40gb,3g.40gb".
func instancesOf(text string) (gpu int, names []string, ok bool) {
	number, list, found := strings.Cut(text, ":")
	gpu, err := strconv.Atoi(strings.TrimSpace(number))
	for name := range strings.SplitSeq(list, ",") {
		names = append(names, strings.TrimSpace(name))
	}
	return gpu, names, found && err == nil
}

// divisibles are the names of the models that have MIG.
func divisibles() []string {
	return slices.DeleteFunc(Models(), func(name string) bool {
		_, divisible := mig.Of(models[name])
		return !divisible
	})
}

func profileNames(g mig.Geometry) (names []string) {
	for i := range g.Profiles {
		names = append(names, g.Profiles[i].Name)
	}
	return names
}
