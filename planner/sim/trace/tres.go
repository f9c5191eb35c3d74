package trace

import (
	"regexp"
	"strconv"
	"strings"
)

// NoShards is why a job with shards is left out where nobody says what one is.
const NoShards = "it has a part of a GPU (gres/shard): say with --shards-per-gpu how many a GPU has"

// tres is what Slurm's "cpu=4,gres/gpu:a100=8,gres/gpu=8" or "gpu:8" says of GPUs.
type tres struct {
	// gpus counts them all, typed those of single models, which Slurm counts in gpus
	// too where it counts both.
	gpus, typed int
	// instances counts those of typed that are MIG instances;
	// profile is the last of them.
	instances int
	profile   string
	// models are the types of those that are no instances, with a | between them.
	models string
	// shards and mps are parts of GPUs, in units that the site has chosen.
	shards, mps int
}

// instance is how Slurm names the type of a MIG instance: AutoDetect puts the model
// before the profile (a100_3g.20gb; gres.conf, MIG Management).
var instance = regexp.MustCompile(`(?:^|[_-])([1-9]g\.[1-9][0-9]{0,3}gb)$`)

func readTRES(text string) (t tres) {
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		if !ok { // the older form: gpu:8, gres:gpu:a100:8 or gpu:8(S:0-1), with the sockets
			part, _, _ = strings.Cut(part, "(")
			if at := strings.LastIndexByte(part, ':'); at >= 0 {
				name, value = part[:at], part[at+1:]
			}
		}
		name = strings.TrimPrefix(strings.TrimPrefix(name, "gres/"), "gres:")
		n, err := strconv.Atoi(value)
		if err != nil {
			continue
		}
		name, typ, _ := strings.Cut(name, ":")
		switch {
		case name == "gpu" && typ == "":
			t.gpus = n
		case name == "gpu":
			t.typed += n
			if m := instance.FindStringSubmatch(strings.ToLower(typ)); m != nil && n > 0 {
				t.instances, t.profile = t.instances+n, m[1]
			} else if n > 0 {
				t.models = strings.TrimPrefix(t.models+"|"+typ, "|")
			}
		case name == "shard" && typ == "":
			t.shards = n
		case name == "mps" && typ == "":
			t.mps = n
		}
	}
	return t
}

// ask is what a job with this asks for. shards is how many a GPU has.
func (t *tres) ask(j *Job, shards int) error {
	if j.GPUs = t.gpus; j.GPUs <= 0 {
		j.GPUs = t.typed
	}
	switch {
	case t.instances == 1 && j.GPUs == 1:
		j.Profile = t.profile
	case t.instances > 0:
		return leftOut("it has a MIG instance and more: a job has one, or whole GPUs")
	case j.GPUs != 0:
	case t.shards > 0 && shards == 0:
		return leftOut(NoShards)
	case t.shards > 0:
		if j.GPUs = (t.shards + shards - 1) / shards; j.GPUs == 1 {
			j.Share = float64(t.shards) / float64(shards)
		}
	case t.mps > 0:
		return leftOut("it has a part of a GPU by MPS (gres/mps), which is not modelled")
	default:
		return leftOut("it has no GPU")
	}
	return nil
}
