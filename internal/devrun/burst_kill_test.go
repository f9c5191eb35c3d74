package devrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
	"github.com/caravan-sched/caravan/internal/devcluster"
)

// TestBurstOutlivesKills has the real autoscaler killed while Terraform makes nodes,
// and then its target plugin while nodes go, with SIGKILL: the gang runs whole on what
// was bought once, and nothing is left. All steps are killed at in virtual time, in
// package daemon.
func TestBurstOutlivesKills(t *testing.T) {
	if _, err := exec.LookPath(autoscalerName); err != nil || !terraform.HasBinary() {
		t.Skip("needs nomad-autoscaler, and terraform or tofu, on the PATH: make tools builds them")
	}
	plugin := build(t)
	t.Parallel() // most of the time it waits
	var log logTail
	var out bytes.Buffer
	r := &run{
		opts:     Options{Scenario: ScenarioBurst, Backend: devcluster.BackendDevNomad, Plugin: plugin, Once: true, Out: &out, Log: log.add},
		scenario: scenario{play: (*run).playKills, configure: bursts}, began: time.Now(),
	}
	r.report = Report{Scenario: ScenarioBurst, Backend: r.opts.Backend}
	r.show = &shower{out: &out, began: r.began}
	if err := r.all(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("the run = %v\n%s\nlog:\n%s", err, &out, log.String())
	}
}

func (r *run) playKills(ctx context.Context) error {
	if err := r.startCloud(ctx); err != nil {
		return err
	}
	if err := r.startWhole(ctx, homeKeeper, trainGangFile, due("10h", "", 0)); err != nil {
		return err
	}
	if _, err := r.submit(trainGangFile, named(urgentGang), due("5m", "20m", urgentBudget)); err != nil {
		return err
	}
	nodes := filepath.Join(r.cloud.dir, "nodes")
	err := poll(ctx, "Terraform makes a node", func() (bool, error) {
		made, err := os.ReadDir(nodes)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return len(made) > 0, err
	})
	if err != nil {
		return r.because(urgentGang, err)
	}
	if err := r.killAndStart(ctx, r.cloud.cmd.Process.Pid, autoscalerName); err != nil {
		return err
	}
	if err := r.waitWhole(ctx, urgentGang); err != nil {
		return r.because(urgentGang, err)
	}
	if err := r.judgeBought(ctx); err != nil {
		return err
	}
	p, err := r.pool(ctx)
	if err != nil {
		return err
	}
	var faults []string
	if len(p.Purchases) != 1 || p.Purchases[0].Gang != api.DefaultNamespace+"/"+urgentGang {
		faults = append(faults, fmt.Sprintf("the purchases are %+v", p.Purchases))
	}
	r.report.Checks = append(r.report.Checks, result("bought-once", faults, "its nodes were bought once"))
	if err := r.stopJob(urgentGang); err != nil {
		return err
	}
	before, err := os.ReadDir(nodes)
	if err != nil {
		return fmt.Errorf("read nodes: %w", err)
	}
	err = poll(ctx, "Terraform ends a node", func() (bool, error) {
		now, err := os.ReadDir(nodes)
		return len(now) < len(before), err
	})
	if err != nil {
		return err
	}
	pid, err := childOf(r.cloud.cmd.Process.Pid, "caravan-terraform")
	if err != nil {
		return err
	}
	if err := r.killAndStart(ctx, pid, "caravan-terraform"); err != nil {
		return err
	}
	return r.awaitGivenBack(ctx)
}

// killAndStart kills a process of the autoscaler, and starts another autoscaler.
func (r *run) killAndStart(ctx context.Context, pid int, name string) error {
	r.step("test", "kills "+name)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", name, err)
	}
	// It does not notice that a plugin is gone, so whoever does ends it too.
	if err := r.cloud.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill autoscaler: %w", err)
	}
	<-r.cloud.ended // with the error that it was killed
	return r.startAutoscaler(ctx)
}

// childOf is the process of a program that another one has started.
func childOf(parent int, program string) (int, error) {
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	for _, file := range all {
		raw, err := os.ReadFile(file)
		_, rest, ok := strings.Cut(string(raw), ") ")
		if err != nil || !ok {
			continue // it has ended
		}
		command, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(parent) && strings.Contains(string(command), program) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				return 0, fmt.Errorf("read process: %w", err)
			}
			return pid, nil
		}
	}
	return 0, fmt.Errorf("process %d has no child %s", parent, program)
}
