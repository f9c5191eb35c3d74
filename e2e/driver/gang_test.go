package driver

import (
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// trainer is a member's code: it writes down what it does, each line with the
// time in nanoseconds, and numbers what it prints.
const trainer = `
note() { echo "$(date +%s%N) $*" >> "$DIARY/$NOMAD_TASK_NAME.$NOMAD_ALLOC_ID"; }
trap 'note end n=$n; exit 0' TERM INT
trap 'note resized world=$(grep -o "\"alloc\"" "$CARAVAN_MEMBERSHIP" | wc -l)' USR2
n=0
note start pid=$$ rank=$RANK world=$WORLD_SIZE epoch=$CARAVAN_EPOCH
while [ ! -e "$DIARY/finish" ]; do
  sleep 0.1 & wait $!
  n=$((n + 1))
  echo "line $n"
  note tick n=$n
  # Two members may see the file at once. Only one can remove it, and fails.
  if [ -e "$DIARY/fail-$RANK" ] && rm "$DIARY/fail-$RANK" 2> /dev/null; then
    note armed
    while [ -e "$DIARY/hold" ]; do sleep 0.01; done
    note fail; exit 7
  fi
done
note end n=$n
`

// task is a task of the driver that runs a script.
func task(name, script string) *api.Task {
	t := api.NewTask(name, "caravan").SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", script}).SetConfig("processes", 1)
	t.Resources = &api.Resources{CPU: new(50), MemoryMB: new(48)}
	t.KillTimeout = new(5 * time.Second)
	return t
}

// gpus makes a task ask for GPUs.
func gpus(t *api.Task, n uint64) *api.Task {
	t.Resources.Devices = []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &n}}
	return t
}

// group is a group of members that are started again at once when they fail.
func group(name string, count int, tasks ...*api.Task) *api.TaskGroup {
	g := api.NewTaskGroup(name, count)
	g.RestartPolicy = &api.RestartPolicy{Attempts: new(5), Interval: new(time.Hour), Delay: new(500 * time.Millisecond), Mode: new("fail")}
	g.ReschedulePolicy = &api.ReschedulePolicy{Attempts: new(0), Unlimited: new(false)}
	for _, t := range tasks {
		g.AddTask(t)
	}
	return g
}

// once makes members that fail stay so.
func once(g *api.TaskGroup) *api.TaskGroup {
	g.RestartPolicy = &api.RestartPolicy{Attempts: new(0), Interval: new(time.Hour), Delay: new(500 * time.Millisecond), Mode: new("fail")}
	return g
}

// elastic gives a group bounds.
func elastic(g *api.TaskGroup, least, most string) *api.TaskGroup {
	g.Meta = map[string]string{"caravan_min": least, "caravan_max": most}
	return g
}

var noID = regexp.MustCompile(`[^A-Za-z0-9]+`)

// job is a batch job named after the test.
func (r *rig) job(groups ...*api.TaskGroup) *api.Job { return r.named("", groups...) }

// named is job for tests that have several.
func (r *rig) named(suffix string, groups ...*api.TaskGroup) *api.Job {
	id := strings.ToLower(noID.ReplaceAllString(strings.TrimPrefix(r.t.Name(), "Test"), "-"))
	if suffix += r.suffix; suffix != "" {
		id += "-" + suffix
	}
	j := api.NewBatchJob(id, id, "global", 50)
	j.Datacenters = []string{"*"}
	j.Meta = map[string]string{"caravan_gang": "job"}
	for _, g := range groups {
		j.AddTaskGroup(g)
	}
	return j
}

// submit registers a job through the gateway. Its tasks know the diary.
func (r *rig) submit(j *api.Job) string {
	r.t.Helper()
	for _, g := range j.TaskGroups {
		for _, t := range g.Tasks {
			if t.Env == nil {
				t.Env = map[string]string{}
			}
			t.Env["DIARY"] = r.diary
		}
	}
	if _, _, err := r.gate.Jobs().Register(j, nil); err != nil {
		r.t.Fatal(err)
	}
	r.jobs = append(r.jobs, *j.ID)
	return *j.ID
}

// start submits a gang of one group and waits until its code runs.
func (r *rig) start(j *api.Job, members int) diary {
	r.t.Helper()
	r.submit(j)
	return r.await("all members run", func(d diary) bool { return len(d.with("start")) == members })
}
