package config

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckTask(t *testing.T) {
	tests := map[string]struct {
		block string
		want  []string
	}{
		"nothing wrong": {block: `{"command": "python3", "args": ["train.py", "${NOMAD_ALLOC_INDEX}"], "processes": "8", "ulimit": [{"nofile": 65536, "memlock": "unlimited"}],
			"checkpoint": [{"signal": "SIGUSR1", "paths": ["ckpt/*"]}], "preflight": {"gpu": true}, "fence_after": "0s", "member": "follow"}`},
		"an image": {block: `{"image": "train:1", "runtime": "docker", "runtime_args": ["--privileged"], "shm_size": "16g"}`},
		"references are not judged": {block: `{"command": "${meta.trainer}", "member": "${NOMAD_META_ROLE}", "processes": "${NOMAD_META_N}", "join_timeout": "${x}", "image": "${NOMAD_META_IMAGE}",
			"ulimit": [{"nofile": "${NOMAD_META_NOFILE}"}], "checkpoint": [{"signal": "${x}", "paths": ["${NOMAD_TASK_DIR}/["]}], "args": ["%{ if true }x%{ endif }"]}`},
		"empty": {block: `{}`, want: []string{`command is "": allowed is a command, or an image`}},
		"everything": {block: `{"comand": "x", "quux": {"a": 1}, "args": "x", "ulimit": [{"nofile": "many", "files": "1", "core": ["1"]}], "processes": 1.5, "pid_namespace": "maybe",
			"member": "king", "join_timeout": "soon", "fence_after": "1s", "resize_signal": "SIGFOO",
			"checkpoint": [{"sginal": "SIGUSR1", "grace": "-1s", "paths": ["["]}], "preflight": [{}, {}]}`, want: []string{
			`args is "x": allowed is a list of strings`,
			`checkpoint.grace is "-1s": allowed is a duration of 0s to 8760h0m0s, as "90s" or "10m"`,
			`checkpoint.paths is "[": allowed is paths and patterns as in a shell: *, ?, [a-z]`,
			`checkpoint.sginal is "SIGUSR1": allowed is nothing: there is no such option; did you mean "signal"?`,
			`comand is "x": allowed is nothing: there is no such option; did you mean "command"?`,
			`command is "": allowed is a command, or an image`,
			`fence_after is "1s": allowed is "0s" for never, or at least 10s, as Nomad's own heartbeats may be that far apart`,
			`join_timeout is "soon": allowed is a duration of 1s to 8760h0m0s, as "90s" or "10m"`,
			`member is "king": allowed is rank, follow, none`,
			`pid_namespace is "maybe": allowed is true or false`,
			`preflight is "[{},{}]": allowed is one block, as preflight { … }`,
			`processes is "1.5": allowed is a whole number`,
			`quux is "{\"a\":1}": allowed is nothing: there is no such option; there are args, checkpoint, command,`,
			`resize_signal is "SIGFOO": allowed is a signal's name, as "SIGUSR1"`,
			`ulimit.core is "[\"1\"]": allowed is a string`,
			`ulimit.files is "1": allowed is a limit of as, core, cpu,`,
			`ulimit.nofile is "many": allowed is a number or "unlimited", or two of them as "SOFT:HARD", the first not above the second`,
		}},
		"many processes": {block: `{"command": "x", "processes": 100000, "runtime": "docker"}`, want: []string{`processes is "100000": allowed is 0 to 4096`, `runtime is "docker": allowed is nothing without an image`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var block map[string]any
			if err := json.Unmarshal([]byte(test.block), &block); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range CheckTask(block) {
				got = append(got, f.Error())
			}
			same := slices.EqualFunc(got, test.want, func(got, want string) bool { return strings.HasPrefix(got, want) })
			if !same {
				t.Errorf("faults (-want +got):\n%s", cmp.Diff(test.want, got))
			}
		})
	}
}

// FuzzCheckTask: whatever stands in a block, it is judged without a panic, and
// always alike.
func FuzzCheckTask(f *testing.F) {
	for _, seed := range []string{`{}`, `{"command": null}`, `{"ulimit": [null]}`, `{"checkpoint": {"paths": [1, {}]}}`, `{"args": ["${", "%{"]}`, `{"processes": 1e400}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, src string) {
		var block map[string]any
		if json.Unmarshal([]byte(src), &block) != nil {
			return
		}
		if diff := cmp.Diff(CheckTask(block), CheckTask(block)); diff != "" {
			t.Errorf("two readings differ:\n%s", diff)
		}
	})
}
