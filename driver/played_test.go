package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// Docker and apptainer are played by scripts that take the command lines that
// the runtimes take, and say and do what they do, as recorded of docker 28.2 and
// apptainer 1.3: they run the container's command on the host. What they cannot
// show is that a runtime understands the command line; see the tests of package
// container for which those are.

// dockerScript keeps each container's process ID in a file with its name.
const dockerScript = `#!/bin/sh
D=DIR
echo "$*" >> $D/calls
none() { echo "Error response from daemon: No such container: $1" >&2; exit 1; }
last() { for last; do :; done; echo $last; }
case "$1" in
version) echo 28.2.2 ;;
info) echo "io.containerd.runc.v2 nvidia runc " ;;
image) [ -e $D/pulled ] && echo sha256:8e0 || { echo "Error response from daemon: No such image: $5" >&2; exit 1; } ;;
pull)
	case "$3" in */missing:*) echo "Error response from daemon: manifest for $3 not found: manifest unknown: manifest unknown" >&2; exit 1 ;; esac
	touch $D/pulled ;;
run)
	while [ "$1" != train:1 ]; do
		case "$1" in
		--name) name=$2 ;;
		--env-file) while IFS= read -r line; do export "$line"; done < $2 ;;
		esac
		shift
	done
	shift
	"$@" &
	echo $! > $D/$name.pid
	wait $! ;;
inspect)
	[ -e $D/$4.pid ] || none $4
	case "$3" in *Pid*) cat $D/$4.pid ;; *OOMKilled*) [ -e $D/oom ] && echo true || echo false ;; esac ;;
kill) kill -s ${3#SIG} $(cat $D/$4.pid) ;;
pause) kill -s STOP $(cat $D/$2.pid) ;;
unpause) kill -s CONT $(cat $D/$2.pid) ;;
exec)
	shift
	while case "$1" in --env) shift ;; -*) ;; *) false ;; esac; do shift; done
	shift
	exec "$@" ;;
rm)
	name=$(last "$@")
	[ -e $D/$name.pid ] || none $name
	kill -s KILL $(cat $D/$name.pid) 2>/dev/null
	rm $D/$name.pid
	echo $name ;;
*) echo "docker: '$1' is not a docker command." >&2; exit 1 ;;
esac
`

const apptainerScript = `#!/bin/sh
D=DIR
echo "$*" >> $D/calls
case "$1" in
--version) echo "apptainer version 1.3.4-1.el9" ;;
exec | run)
	while [ "$1" != $D/train.sif ]; do shift; done
	shift
	for pair in $(env | grep ^APPTAINERENV_); do export "${pair#APPTAINERENV_}"; done
	exec "$@" ;;
*) echo "Error for command \"$1\": unknown command" >&2; exit 1 ;;
esac
`

// played is a plugin on a host whose only runtime is a script. dir has the
// script's files.
func played(t *testing.T, name, script string) (r *rig, dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(script, "DIR", dir)), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return newRig(t, fmt.Sprintf("runtimes = [%q]", name), "allow_runtime_args = true"), dir
}

// recorded are the command lines so far, sorted, each once, with names and paths
// that differ from run to run as words. Some are made side by side.
func recorded(t *testing.T, dir string, task driver.TaskConfig) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(containerName(task), "NAME", task.TaskDir(), "TASK", task.AllocDir, "ALLOC", dir, "DIR").Replace(string(data))
	text = regexp.MustCompile(`\.container-\d+`).ReplaceAllString(text, ".container-N")
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

func TestDockerIsPlayed(t *testing.T) {
	r, dir := played(t, "docker", dockerScript)
	f := r.fingerprint()
	for key, want := range map[string]attr.Value{"driver.caravan.runtime.docker": attr.String("28.2.2"), "driver.caravan.runtime.docker.nvidia": attr.String("runtime")} {
		if got := f.Attributes[key]; got != want {
			t.Errorf("attribute %s = %v", key, got)
		}
	}
	task := r.task("a", `image = "train:1"
command = "/bin/sh"
args = ["-c", "trap 'echo told' USR1; trap 'echo bye; exit 5' TERM; echo \"$GREETING in $RANK\"; while :; do sleep 0.02; done"]
runtime_args = ["--hostname=train"]
ulimit { memlock = "unlimited" }`)
	task.DeviceEnv = map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"}
	task.Devices = []driver.DeviceNode{{HostPath: "/dev/nvidia0", TaskPath: "/dev/nvidia0", Permissions: "rw"}, {HostPath: "/dev/null", TaskPath: "/dev/infiniband/uverbs0", Permissions: "rw"}}
	task.Mounts = []driver.Mount{{HostPath: dir, TaskPath: "/data", ReadOnly: true, Propagation: "private"}}
	task.Resources.Linux = driver.Linux{CPUShares: 1000, MemoryLimitBytes: 1 << 30, CPUSet: "0"}
	task.User = "1000:1000"
	if _, _, err := r.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	r.output(task, "hello in 0")
	pid := strings.TrimSpace(r.waitFile(filepath.Join(dir, containerName(task)+".pid")))
	r.eventually("process ID", func() (bool, any) {
		s, err := r.Inspect(t.Context(), task.ID)
		return err == nil && s.Attributes["pid"] == pid, s.Attributes
	})
	if err := r.Signal(t.Context(), task.ID, "SIGUSR1"); err != nil {
		t.Error(err)
	}
	r.output(task, "told")
	res, err := r.Exec(t.Context(), task.ID, []string{"/bin/echo", "inside"}, patience)
	if err != nil || string(res.Stdout) != "inside\n" {
		t.Errorf("exec = %+v, %v", res, err)
	}
	if err := r.Stop(t.Context(), task.ID, patience, "SIGTERM"); err != nil {
		t.Fatal(err)
	}
	if e := r.exit(task.ID); e != (driver.Exit{Code: 5}) {
		t.Errorf("exit = %+v", e)
	}
	if err := r.Destroy(t.Context(), task.ID, false); err != nil {
		t.Error(err)
	}
	want := []string{
		"version --format {{.Server.Version}}", "info --format {{range $name, $r := .Runtimes}}{{$name}} {{end}}",
		"image inspect --format {{.Id}} train:1", "pull --quiet train:1", "rm --force --volumes NAME",
		"run --name NAME --log-driver none --pull never --pids-limit -1 --env-file TASK/.container-N/environment" +
			" --label caravan.alloc=alloc-a --label caravan.job=train --label caravan.namespace=default --label caravan.task=main" +
			" --network host --user 1000:1000 --shm-size 1073741824b --ulimit memlock=-1 --cpu-shares 1000 --memory 1073741824 --memory-swap 1073741824 --cpuset-cpus 0" +
			" --volume ALLOC/alloc:ALLOC/alloc:rw,rprivate --volume TASK/local:TASK/local:rw,rprivate --volume TASK/secrets:TASK/secrets:rw,rprivate --volume DIR:/data:ro,rprivate" +
			" --device /dev/null:/dev/infiniband/uverbs0:rw --runtime nvidia --hostname=train train:1 /bin/sh -c" +
			" trap 'echo told' USR1; trap 'echo bye; exit 5' TERM; echo \"$GREETING in $RANK\"; while :; do sleep 0.02; done",
		"inspect --format {{.State.Pid}} NAME", "kill --signal SIGUSR1 NAME", "exec --interactive NAME /bin/echo inside",
		"kill --signal SIGTERM NAME", "inspect --format {{.State.OOMKilled}} NAME",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, recorded(t, dir, task)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// waitFile waits until a file has something in it.
func (r *rig) waitFile(path string) (text string) {
	r.t.Helper()
	r.eventually("file "+path, func() (bool, any) {
		data, err := os.ReadFile(path)
		text = string(data)
		return err == nil && text != "", err
	})
	return text
}

// TestDockerFails: what docker says reaches the user.
func TestDockerFails(t *testing.T) {
	r, dir := played(t, "docker", dockerScript)
	t.Run("no such image", func(t *testing.T) {
		task := r.task("missing", `image = "registry.example/missing:1"`)
		if _, _, err := r.Start(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		if e := r.exit(task.ID); e.Err == nil || !strings.Contains(e.Err.Error(), "pull image registry.example/missing:1") || !strings.Contains(e.Err.Error(), "manifest unknown") {
			t.Errorf("exit = %+v", e)
		}
	})
	t.Run("killed for memory", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(dir, "oom"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		task := r.task("oom", "image = \"train:1\"\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"kill -9 $$\"]")
		if _, _, err := r.Start(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		if e := r.exit(task.ID); e != (driver.Exit{Signal: 9, OOMKilled: true}) {
			t.Errorf("exit = %+v", e)
		}
	})
	t.Run("ignores everything", func(t *testing.T) {
		task := r.task("stubborn", "image = \"train:1\"\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"trap '' TERM; echo up; while :; do sleep 0.02; done\"]")
		if _, _, err := r.Start(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		r.output(task, "up")
		pid, err := strconv.Atoi(strings.TrimSpace(r.waitFile(filepath.Join(dir, containerName(task)+".pid"))))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Stop(t.Context(), task.ID, 300*time.Millisecond, "SIGTERM"); err != nil {
			t.Fatal(err)
		}
		if e := r.exit(task.ID); e.Signal != 9 {
			t.Errorf("exit = %+v", e)
		}
		r.eventually("end of the process", func() (bool, any) {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || strings.Contains(string(data), ") Z "), string(data)
		})
	})
}

func TestApptainerIsPlayed(t *testing.T) {
	r, dir := played(t, "apptainer", apptainerScript)
	if got := r.fingerprint().Attributes["driver.caravan.runtime.apptainer"]; got != attr.String("1.3.4-1.el9") {
		t.Errorf("attribute = %v", got)
	}
	image := filepath.Join(dir, "train.sif")
	hcl := fmt.Sprintf(`image = %q
command = "/bin/sh"
args = ["-c", "trap 'echo bye; exit 5' TERM; echo \"$GREETING in $RANK\"; while :; do sleep 0.02; done"]`, image)
	absent := r.task("absent", hcl)
	if _, _, err := r.Start(t.Context(), absent); err != nil {
		t.Fatal(err)
	}
	if e := r.exit(absent.ID); e.Err == nil || !strings.Contains(e.Err.Error(), "find image: stat "+image) {
		t.Errorf("exit = %+v", e)
	}
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	task := r.task("a", hcl)
	task.DeviceEnv = map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-1"}
	if _, _, err := r.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	r.output(task, "hello in 0")
	if res, err := r.Exec(t.Context(), task.ID, []string{"/bin/echo"}, patience); err == nil || !strings.Contains(err.Error(), "apptainer runs no commands in a container that runs already") {
		t.Errorf("exec = %+v, %v", res, err)
	}
	if err := r.Stop(t.Context(), task.ID, patience, "SIGTERM"); err != nil {
		t.Fatal(err)
	}
	if e := r.exit(task.ID); e != (driver.Exit{Code: 5}) {
		t.Errorf("exit = %+v", e)
	}
	want := []string{
		"--version",
		"exec --containall --no-eval --no-umask --bind ALLOC/alloc:ALLOC/alloc:rw --bind TASK/local:TASK/local:rw --bind TASK/secrets:TASK/secrets:rw --nv DIR/train.sif /bin/sh -c" +
			" trap 'echo bye; exit 5' TERM; echo \"$GREETING in $RANK\"; while :; do sleep 0.02; done",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, recorded(t, dir, task)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
