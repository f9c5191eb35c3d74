package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// The parameters of orders have blocks of their own in the policy block; they
// take effect only with the order that they are for.

// secondsOfHour turn hours, which people write, into what the core counts in.
const secondsOfHour = 3600

type fileLAS struct {
	ThresholdsGPUHours *[]float64 `hcl:"thresholds_gpu_hours,optional"`
	Starve             *float64   `hcl:"starve,optional"`
}

type fileDeadline struct {
	Margin *string  `hcl:"margin,optional"`
	Safety *float64 `hcl:"safety,optional"`
}

type fileFTF struct {
	Fairness *float64 `hcl:"fairness,optional"`
	Lease    *string  `hcl:"lease,optional"`
}

type fileMaxMin struct {
	Round *string `hcl:"round,optional"`
}

// minMargin is the shortest policy.deadline.margin: where nothing happens, decisions
// are half as far apart.
const minMargin = time.Minute

type fileCaravan struct {
	Patience      *float64 `hcl:"patience,optional"`
	Short         *string  `hcl:"short,optional"`
	StuckAfter    *string  `hcl:"stuck_after,optional"`
	SizeDelay     *string  `hcl:"size_delay,optional"`
	DeadlinesOnly *bool    `hcl:"deadlines_only,optional"`
}

type fileInteractive struct {
	Classes *[]string `hcl:"classes,optional"`
	Queues  *[]string `hcl:"queues,optional"`
	MaxGPUs *int      `hcl:"max_gpus,optional"`
	MaxRun  *string   `hcl:"max_run,optional"`
	Reserve *string   `hcl:"reserve,optional"`
	Lend    *bool     `hcl:"lend,optional"`
}

type fileTimeslice struct {
	Quantum *string `hcl:"quantum,optional"`
}

// mergeOrders takes what the file says of orders.
func (l *loader) mergeOrders(p *queue.Policy, f *filePolicy) {
	if las := f.LAS; las != nil {
		if las.ThresholdsGPUHours != nil {
			p.LAS.Thresholds = nil
			for _, hours := range *las.ThresholdsGPUHours {
				p.LAS.Thresholds = append(p.LAS.Thresholds, hours*secondsOfHour)
			}
		}
		set(&p.LAS.Starve, las.Starve)
	}
	if f.Caravan != nil {
		set(&p.Caravan.Patience, f.Caravan.Patience)
		l.duration(&p.Caravan.Short, f.Caravan.Short, "policy.caravan.short")
		l.duration(&p.Caravan.StuckAfter, f.Caravan.StuckAfter, "policy.caravan.stuck_after")
		l.duration(&p.Caravan.SizeDelay, f.Caravan.SizeDelay, "policy.caravan.size_delay")
		set(&p.Caravan.DeadlinesOnly, f.Caravan.DeadlinesOnly)
	}
	if i := f.Interactive; i != nil {
		set(&p.Interactive.Classes, i.Classes)
		set(&p.Interactive.Queues, i.Queues)
		set(&p.Interactive.MaxGPUs, i.MaxGPUs)
		l.duration(&p.Interactive.MaxRun, i.MaxRun, "policy.interactive.max_run")
		l.reserve(&p.Interactive, i.Reserve)
		set(&p.Interactive.Lend, i.Lend)
	}
	if f.Timeslice != nil {
		l.duration(&p.Timeslice.Quantum, f.Timeslice.Quantum, "policy.timeslice.quantum")
	}
	if d := f.Deadline; d != nil {
		l.duration(&p.Deadline.Margin, d.Margin, "policy.deadline.margin")
		set(&p.Deadline.Safety, d.Safety)
	}
	if ftf := f.FTF; ftf != nil {
		set(&p.FTF.Fairness, ftf.Fairness)
		l.duration(&p.FTF.Lease, ftf.Lease, "policy.ftf.lease")
	}
	if m := f.MaxMin; m != nil {
		l.duration(&p.MaxMin.Round, m.Round, "policy.maxmin.round")
	}
}

// checkOrders finds the parameters that cannot be used, whatever the order is.
func (l *loader) checkOrders(p *queue.Policy) {
	if n := len(p.LAS.Thresholds); n < 1 || n > queue.MaxThresholds {
		l.fault("policy.las.thresholds_gpu_hours", n, fmt.Sprintf("want 1 to %d numbers of GPU-hours", queue.MaxThresholds))
	}
	if n := p.Caravan.Patience; !(n > 0 && n <= queue.MaxPatience) {
		l.fault("policy.caravan.patience", n, fmt.Sprintf("want more than 0, at most %d: how many times as long as it is predicted to need a job is passed by others", queue.MaxPatience))
	}
	l.between("policy.caravan.short", p.Caravan.Short, time.Minute, queue.MaxShort)
	l.between("policy.caravan.stuck_after", p.Caravan.StuckAfter, time.Hour, queue.MaxStuckAfter)
	l.between("policy.caravan.size_delay", p.Caravan.SizeDelay, time.Second, queue.MaxSizeDelay)
	l.checkInteractive(&p.Interactive)
	l.checkReserve(p)
	l.between("policy.timeslice.quantum", p.Timeslice.Quantum, queue.MinQuantum, queue.MaxQuantum)
	last := 0.0
	for _, t := range p.LAS.Thresholds {
		switch {
		case !(t > last):
			l.fault("policy.las.thresholds_gpu_hours", t/secondsOfHour, "want more than 0 and than the one before: each number greater than the last")
		case t > queue.MaxThreshold:
			l.fault("policy.las.thresholds_gpu_hours", t/secondsOfHour, fmt.Sprintf("want at most %d", queue.MaxThreshold/secondsOfHour))
		}
		last = t
	}
	if s := p.LAS.Starve; !(s > 0 && s <= queue.MaxStarve) {
		l.fault("policy.las.starve", s, fmt.Sprintf("want more than 0, at most %g: how many times as long as it ran a job waits until it goes first", float64(queue.MaxStarve)))
	}
	l.between("policy.deadline.margin", p.Deadline.Margin, minMargin, queue.MaxMargin)
	if s := p.Deadline.Safety; !(s >= 1 && s <= queue.MaxSafety) {
		l.fault("policy.deadline.safety", s, fmt.Sprintf("want 1 to %d: how many times as long as estimated a job is taken to run", queue.MaxSafety))
	}
	if f := p.FTF.Fairness; !(f > 0 && f < 1) {
		l.fault("policy.ftf.fairness", f, "want more than 0 and less than 1: the part of jobs that is offered nothing in the first place")
	}
	l.between("policy.ftf.lease", p.FTF.Lease, queue.MinLease, queue.MaxLease)
	l.between("policy.maxmin.round", p.MaxMin.Round, queue.MinLease, queue.MaxLease)
}

// reserve reads a number of GPUs, or a part of all in per cent.
func (l *loader) reserve(i *queue.Interactive, text *string) {
	if text == nil {
		return
	}
	i.Reserve, i.ReserveShare = 0, 0
	if number, percent := strings.CutSuffix(*text, "%"); percent {
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err == nil && n >= 0 && n <= 100 {
			i.ReserveShare = n / 100
			return
		}
	} else if n, err := strconv.Atoi(*text); err == nil && n >= 0 && n <= queue.MaxInteractiveReserve {
		i.Reserve = n
		return
	}
	l.refuse("policy.interactive.reserve", *text, fmt.Sprintf("want a number of GPUs, 0 to %d, or a part of all like \"5%%\"", queue.MaxInteractiveReserve))
}

// checkReserve finds a reserve that would do nothing.
func (l *loader) checkReserve(p *queue.Policy) {
	i := &p.Interactive
	reserves := i.Reserve > 0 || i.ReserveShare > 0
	if reserves && !i.Any() {
		l.fault("policy.interactive.reserve", i.Reserve, "say by policy.interactive.classes or queues whose jobs are interactive, or leave it out", "policy.interactive.classes", "policy.interactive.queues")
	}
	if i.Lend && !reserves {
		l.fault("policy.interactive.lend", i.Lend, "want policy.interactive.reserve beside it", "policy.interactive.reserve")
	}
	if i.Lend && !p.Preempt.Enabled {
		l.fault("policy.interactive.lend", i.Lend, "want policy.preempt.enabled: what is lent comes back when others give way", "policy.preempt.enabled")
	}
}

func (l *loader) checkInteractive(i *queue.Interactive) {
	for _, name := range i.Classes {
		if strings.TrimSpace(name) == "" {
			l.fault("policy.interactive.classes", name, "want names that caravan_priority may have")
		}
	}
	for _, path := range i.Queues {
		if !model.ValidQueuePath(path) {
			l.fault("policy.interactive.queues", path, `want paths of queues, like "org/team"`)
		}
	}
	if i.MaxGPUs < 1 || i.MaxGPUs > queue.MaxInteractiveGPUs {
		l.fault("policy.interactive.max_gpus", i.MaxGPUs, fmt.Sprintf("want 1 to %d", queue.MaxInteractiveGPUs))
	}
	l.between("policy.interactive.max_run", i.MaxRun, time.Minute, queue.MaxInteractiveRun)
}

// defaultPolicy is the policy of a planner without a file.
func defaultPolicy() queue.Policy {
	return queue.Policy{
		Forecasts: queue.DefaultForecasts,
		Backfill:  queue.Backfill{MaxWait: queue.DefaultMaxWait},
		Order:     DefaultOrder, MaxHolds: DefaultMaxHolds, Preempt: defaultPreempt(), Elastic: defaultElastic(), Defrag: defaultDefrag(), Replace: defaultReplace(),
		Caravan: queue.Caravan{}.WithDefaults(), Interactive: queue.Interactive{}.WithDefaults(), LAS: queue.LAS{}.WithDefaults(), Timeslice: queue.Timeslice{}.WithDefaults(), Deadline: queue.Deadline{}.WithDefaults(), FTF: queue.FTF{}.WithDefaults(), MaxMin: queue.MaxMin{}.WithDefaults(),
		Burst: burst.Policy{}.WithDefaults(),
	}
}
