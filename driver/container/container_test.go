package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeHost answers as podman 4.3, docker 28.2 and apptainer 1.3 do.
type fakeHost struct {
	installed []string
	cdi       []string
	// answers are by the command's base name and its first arguments; a missing
	// one is an error.
	answers map[string]string
	calls   []string
}

func (h *fakeHost) LookPath(name string) (string, error) {
	if slices.Contains(h.installed, name) {
		return "/usr/bin/" + name, nil
	}
	return "", errors.New("not found")
}

func (h *fakeHost) Output(_ context.Context, command string, args ...string) (string, error) {
	call := filepath.Base(command) + " " + strings.Join(args, " ")
	h.calls = append(h.calls, call)
	for prefix, answer := range h.answers {
		if strings.HasPrefix(call, prefix) {
			if text, ok := strings.CutPrefix(answer, "error: "); ok {
				return "", errors.New(text)
			}
			return answer, nil
		}
	}
	return "", fmt.Errorf("unexpected call %q", call)
}

func (h *fakeHost) CDI() []string { return h.cdi }

func TestFind(t *testing.T) {
	tests := map[string]struct {
		host    *fakeHost
		allowed []string
		want    []Runtime
		wantErr []string
	}{
		"nothing is installed": {
			host: &fakeHost{}, allowed: []string{"podman", "docker"},
			wantErr: []string{"podman: is not installed", "docker: is not installed"},
		},
		"a client without a server": {
			host: &fakeHost{installed: []string{"docker"}, answers: map[string]string{
				"docker version": "error: exit status 1: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
			}},
			allowed: []string{"docker"}, wantErr: []string{"docker: does not answer: exit status 1: Cannot connect"},
		},
		"podman with CDI": {
			host: &fakeHost{installed: []string{"podman"}, cdi: []string{"nvidia.com/gpu"}, answers: map[string]string{"podman version": "4.3.1\n"}}, allowed: []string{"podman"},
			want: []Runtime{{Name: Podman, Path: "/usr/bin/podman", Version: "4.3.1", NVIDIA: NVIDIACDI}},
		},
		"podman without": {
			host: &fakeHost{installed: []string{"podman"}, cdi: []string{"intel.com/gpu"}, answers: map[string]string{"podman version": "5.0.0-rc1\n"}}, allowed: []string{"podman"},
			want: []Runtime{{Name: Podman, Path: "/usr/bin/podman", Version: "5.0.0-rc1"}},
		},
		"docker with NVIDIA's runtime": {
			host: &fakeHost{installed: []string{"docker"}, answers: map[string]string{"docker version": "28.2.2\n", "docker info": "io.containerd.runc.v2 nvidia runc \n"}}, allowed: []string{"docker"},
			want: []Runtime{{Name: Docker, Path: "/usr/bin/docker", Version: "28.2.2", NVIDIA: NVIDIARuntime}},
		},
		"docker without": {
			host: &fakeHost{installed: []string{"docker"}, answers: map[string]string{"docker version": "28.2.2\n", "docker info": "runc \n"}}, allowed: []string{"docker"},
			want: []Runtime{{Name: Docker, Path: "/usr/bin/docker", Version: "28.2.2"}},
		},
		"in the order of preference": {
			host: &fakeHost{installed: []string{"podman", "apptainer"}, answers: map[string]string{"podman version": "4.3.1", "apptainer --version": "apptainer version 1.3.4-1.el9\n"}}, allowed: []string{"apptainer", "podman"},
			want: []Runtime{{Name: Apptainer, Path: "/usr/bin/apptainer", Version: "1.3.4-1.el9", NVIDIA: NVIDIANative}, {Name: Podman, Path: "/usr/bin/podman", Version: "4.3.1"}},
		},
		"nonsense": {
			host: &fakeHost{installed: []string{"podman"}, answers: map[string]string{"podman version": "segmentation fault"}}, allowed: []string{"podman"},
			wantErr: []string{`podman: says "segmentation fault" where its version was asked for`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Find(t.Context(), test.host, test.allowed)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			for _, want := range test.wantErr {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v lacks %q", err, want)
				}
			}
			if test.wantErr == nil && err != nil {
				t.Error(err)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	found := []Runtime{{Name: Podman}, {Name: Apptainer}}
	if r, err := Choose(found, nil, ""); err != nil || r.Name != Podman {
		t.Errorf("choice = %v, %v", r, err)
	}
	if r, err := Choose(found, nil, "apptainer"); err != nil || r.Name != Apptainer {
		t.Errorf("choice = %v, %v", r, err)
	}
	_, err := Choose(nil, errors.New("podman: is not installed"), "")
	if !errors.Is(err, ErrNoRuntime) || !strings.Contains(err.Error(), "podman: is not installed; install one") {
		t.Errorf("error = %v", err)
	}
	if _, err := Choose(nil, nil, "podman"); !errors.Is(err, ErrNoRuntime) {
		t.Errorf("error = %v", err)
	}
}

func full(r Runtime) Spec {
	return Spec{
		Runtime: r, Name: "caravan-a1", Image: "train:1", Entrypoint: []string{"/init", "-s"}, Command: "python3", Args: []string{"train.py"},
		Env: map[string]string{"B": "2", "A": "1 x"}, WorkDir: "/w", User: "1000:100",
		Mounts:  []Mount{{HostPath: "/h/alloc", TaskPath: "/h/alloc"}, {HostPath: "/data", TaskPath: "/d", ReadOnly: true, Propagation: "host-to-task"}},
		Devices: []Device{{HostPath: "/dev/nvidia-caps-imex-channels/channel0", TaskPath: "/dev/nvidia-caps-imex-channels/channel0", Permissions: "rw"}},
		GPUs:    []string{"GPU-1", "GPU-2"}, ShmSize: "16g", Ulimits: map[string]string{"memlock": "unlimited", "nofile": "1:2"},
		Limits:      Limits{CPUShares: 100, CPUSet: "0-3", MemoryBytes: 1 << 20, OOMScoreAdj: 5},
		RuntimeArgs: []string{"--init"}, Labels: map[string]string{"alloc": "a1"},
	}
}

func TestInvoke(t *testing.T) {
	managed := func(gpus ...string) []string {
		return slices.Concat([]string{
			"run", "--name", "caravan-a1", "--log-driver", "none", "--pull", "never", "--pids-limit", "-1", "--env-file", envFile,
			"--label", "alloc=a1", "--network", "host", "--workdir", "/w", "--user", "1000:100", "--shm-size", "16g",
			"--ulimit", "memlock=-1", "--ulimit", "nofile=1:2",
			"--cpu-shares", "100", "--memory", "1048576", "--memory-swap", "1048576", "--oom-score-adj", "5", "--cpuset-cpus", "0-3",
			"--volume", "/h/alloc:/h/alloc:rw,rprivate", "--volume", "/data:/d:ro,rslave",
			"--device", "/dev/nvidia-caps-imex-channels/channel0:/dev/nvidia-caps-imex-channels/channel0:rw",
		}, gpus, []string{"--init", "--entrypoint", "/init", "train:1", "-s", "python3", "train.py"})
	}
	tests := map[string]struct {
		spec Spec
		want invocation
	}{
		"podman, CDI": {
			full(Runtime{Name: Podman, NVIDIA: NVIDIACDI}),
			invocation{args: managed("--device", "nvidia.com/gpu=GPU-1", "--device", "nvidia.com/gpu=GPU-2"), file: "A=1 x\nB=2\n"},
		},
		"docker, NVIDIA's runtime": {
			full(Runtime{Name: Docker, NVIDIA: NVIDIARuntime}), invocation{args: managed("--runtime", "nvidia"), file: "A=1 x\nB=2\n"},
		},
		"apptainer": {
			full(Runtime{Name: Apptainer, NVIDIA: NVIDIANative}),
			invocation{args: []string{
				"exec", "--containall", "--no-eval", "--no-umask", "--pwd", "/w", "--bind", "/h/alloc:/h/alloc:rw", "--bind", "/data:/d:ro",
				"--bind", "/dev/nvidia-caps-imex-channels/channel0:/dev/nvidia-caps-imex-channels/channel0", "--nv", "--init",
				"train:1", "/init", "-s", "python3", "train.py",
			}, env: []string{"APPTAINERENV_A=1 x", "APPTAINERENV_B=2"}},
		},
		"the image's own command": {
			Spec{Runtime: Runtime{Name: Podman}, Name: "n", Image: "i"},
			invocation{args: []string{"run", "--name", "n", "--log-driver", "none", "--pull", "never", "--pids-limit", "-1", "--env-file", envFile, "--network", "host", "i"}},
		},
		"the image's own command in apptainer": {
			Spec{Runtime: Runtime{Name: Apptainer}, Image: "/i.sif", Args: []string{"x"}},
			invocation{args: []string{"run", "--containall", "--no-eval", "--no-umask", "/i.sif", "x"}},
		},
		"Nomad's network and a value of several lines": {
			Spec{Runtime: Runtime{Name: Podman}, Name: "n", Image: "i", NetworkNamespace: "/var/run/netns/a", Env: map[string]string{"KEYS": "a\nb", "X": "1"}},
			invocation{
				args: []string{"run", "--name", "n", "--log-driver", "none", "--pull", "never", "--pids-limit", "-1", "--env-file", envFile, "--env", "KEYS", "--network", "ns:/var/run/netns/a", "i"},
				env:  []string{"KEYS=a\nb"}, file: "X=1\n",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if err := test.spec.Check(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, test.spec.invoke(), cmp.AllowUnexported(invocation{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	s := full(Runtime{Name: Docker})
	s.Image, s.NetworkNamespace = "--privileged", "/ns"
	s.Mounts = []Mount{{HostPath: "/a:b", TaskPath: "c"}, {HostPath: "/a", TaskPath: "/b", Propagation: "odd"}}
	s.Env = map[string]string{"A B": "", "LD_PRELOAD": "a\nb", "lower": "a\nb", "FINE": "a\nb"}
	err := s.Check()
	for _, want := range []string{
		`image is "--privileged"`, "docker cannot give GPUs", "docker cannot join the network", `mount of "/a:b" at "c"`,
		`propagation is "odd"`, `environment variable "A B"`, `environment variable "LD_PRELOAD" has several lines`, `environment variable "lower"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "FINE") {
		t.Errorf("error names what is fine:\n%v", err)
	}
}

// slowHost answers a call as late says from the third time on.
type slowHost struct {
	fakeHost
	late map[string]string
}

func (h *slowHost) Output(ctx context.Context, command string, args ...string) (string, error) {
	for prefix, answer := range h.late {
		if n := len(slices.DeleteFunc(slices.Clone(h.calls), func(call string) bool { return !strings.HasPrefix(call, prefix) })); n == 2 {
			h.answers[prefix] = answer
		}
	}
	return h.fakeHost.Output(ctx, command, args...)
}

// TestRemove: podman takes it for a fault that a container ends while it is
// being ended; it is gone all the same.
func TestRemove(t *testing.T) {
	const call = "podman rm --force --volumes --time 0 a1"
	s := Spec{Runtime: Runtime{Name: Podman, Path: "/usr/bin/podman"}, Name: "a1"}
	fault := "error: exit status 2: kill container: No such process: sending SIGKILL to container f2: container state improper: stopped"
	host := &slowHost{fakeHost: fakeHost{answers: map[string]string{call: fault}}, late: map[string]string{call: "f2\n"}}
	if err := Remove(t.Context(), host, s); err != nil {
		t.Error(err)
	}
	broken := &fakeHost{answers: map[string]string{call: "error: it is broken"}}
	if err := Remove(t.Context(), broken, s); err == nil || !strings.Contains(err.Error(), "remove container a1: it is broken") || len(broken.calls) != removeTries {
		t.Errorf("error = %v after %v", err, broken.calls)
	}
}

func TestPull(t *testing.T) {
	tests := map[string]struct {
		answers map[string]string
		want    []string
		wantErr string
	}{
		"the image is there": {map[string]string{"podman image inspect": "sha256:1"}, []string{"podman image inspect --format {{.Id}} train:1"}, ""},
		"it is not": {
			map[string]string{"podman image inspect": "error: no such image", "podman pull": "sha256:1"},
			[]string{"podman image inspect --format {{.Id}} train:1", "podman pull --quiet train:1"}, "",
		},
		"it cannot be had": {
			map[string]string{"podman image inspect": "error: no such image", "podman pull": "error: exit status 125: unauthorized"},
			[]string{"podman image inspect --format {{.Id}} train:1", "podman pull --quiet train:1"}, "pull image train:1: exit status 125: unauthorized",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			host := &fakeHost{answers: test.answers}
			err := Pull(t.Context(), host, full(Runtime{Name: Podman, Path: "podman", NVIDIA: NVIDIACDI}))
			if test.wantErr == "" && err != nil || test.wantErr != "" && (err == nil || err.Error() != test.wantErr) {
				t.Errorf("error = %v, want %q", err, test.wantErr)
			}
			if diff := cmp.Diff(test.want, host.calls); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCDIKinds(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"nvidia.yaml": "cdiVersion: \"0.5.0\"\nkind: \"nvidia.com/gpu\"\ndevices:\n- name: \"0\"\n", "x.json": `{"kind":"vendor.com/net"}`,
		"broken.json": `{`, "other.txt": "kind: a/b",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"nvidia.com/gpu", "vendor.com/net"}, cdiKinds([]string{filepath.Join(dir, "none"), dir})); diff != "" {
		t.Error(diff)
	}
}
