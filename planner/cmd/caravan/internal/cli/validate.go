package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/internal/jobhcl"
	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/taskcheck"
)

// checked is what `validate` prints as JSON, one for each file.
type checked struct {
	File string `json:"file"`
	Job  string `json:"job,omitempty"`
	OK   bool   `json:"ok"`
	// Managed is false when Caravan leaves the job to Nomad; Why says so.
	Managed bool     `json:"managed"`
	Why     string   `json:"why,omitempty"`
	Faults  []string `json:"faults,omitempty"`
	// Warnings are what does not do what it seems to.
	Warnings []string `json:"warnings,omitempty"`
	Gang     string   `json:"gang,omitempty"`
	Members  int      `json:"members,omitempty"`
	GPUs     int      `json:"gpus,omitempty"`
}

func (a *app) validateCommand() *cobra.Command {
	var flags jobFlags
	var rules rules
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check job files without a planner",
		Long: `Validate parses job files, reads their caravan_ settings and checks what Nomad
checks of a job by itself, without a network, and lists every fault of every
file. What depends on the cluster (namespaces, node pools, drivers) is checked by
caravan plan. Exit codes: 0 all are valid; 1 at least one is not.`,
		Args: args(1, -1, "job files"),
		RunE: func(_ *cobra.Command, argv []string) error {
			opts, err := flags.options(a.env)
			if err != nil {
				return err
			}
			results := []checked{}
			failed := false
			for _, name := range argv {
				c := checked{File: name}
				if jf, err := readJob(a.env, name, opts); err != nil {
					c.Faults = []string{err.Error()}
				} else {
					c = check(jf, rules)
				}
				failed = failed || !c.OK
				results = append(results, c)
			}
			if err := a.print(results, func(w io.Writer, s render.Style) error { return writeChecked(w, results) }); err != nil {
				return err
			}
			if failed {
				return &exit{code: CodeFailure}
			}
			return nil
		},
	}
	flags.add(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&rules.devices, "device", gangspec.DefaultDevices, "a `device` that the planner manages; may be repeated")
	f.StringArrayVar(&rules.levels, "level", nil, "a topology `level` of the cluster's own; may be repeated")
	f.IntVar(&rules.maxPriority, "max-priority", nomadMaxPriority, "the Nomad servers' `job_max_priority`")
	f.IntVar(&rules.maxCount, "max-count", nomadMaxCount, "the Nomad servers' `job_max_count`; 0 is no limit")
	return cmd
}

// rules are what the cluster's operators have set.
type rules struct {
	devices, levels       []string
	maxPriority, maxCount int
}

func check(jf *jobFile, r rules) checked {
	c := checked{File: jf.name}
	jf.opts.FileFunctions = true
	job, err := jobhcl.ParseWith(jf.src, jf.name, jf.opts)
	if err != nil {
		c.Faults = parseFaults(err)
		return c
	}
	c.Job = deref(job.ID)
	for _, f := range nomadFaults(job, r) {
		c.Faults = append(c.Faults, jf.name+": "+f)
	}
	c.Warnings = idle(job)
	spec, err := taskcheck.Parse(job, r.levels...)
	var faults *gangspec.Error
	switch {
	case errors.As(err, &faults):
		for _, f := range faults.Sentences() {
			c.Faults = append(c.Faults, jf.name+": "+f)
		}
	case err != nil:
		c.Faults = append(c.Faults, jf.name+": "+err.Error())
	}
	c.OK = len(c.Faults) == 0
	switch why := gangspec.Unmanageable(job); {
	case !gangspec.Asks(job, r.devices):
		c.Why = "it asks for no managed device"
	case why != "":
		c.Why = why
	default:
		c.Managed = true
	}
	if !c.OK || !c.Managed {
		return c
	}
	c.Gang = string(spec.Gang)
	for _, g := range gangspec.ToModel(job, spec).Groups {
		c.Members += g.Count
		for _, d := range g.Devices {
			if gangspec.MatchesAny(d.Name, r.devices) {
				c.GPUs += g.Count * d.Count
			}
		}
	}
	return c
}

// parseFaults are a parse error's lines, each with its own place.
func parseFaults(err error) []string {
	var list *jobhcl.Error
	if !errors.As(err, &list) {
		return []string{err.Error()}
	}
	out := make([]string, len(list.Diagnostics))
	for i, d := range list.Diagnostics {
		out[i] = d.Error()
	}
	return out
}

func writeChecked(w io.Writer, results []checked) error {
	for _, c := range results {
		for _, f := range c.Faults {
			if _, err := fmt.Fprintln(w, f); err != nil {
				return err
			}
		}
		for _, text := range c.Warnings {
			if _, err := fmt.Fprintf(w, "%s: warning: %s\n", c.File, text); err != nil {
				return err
			}
		}
		var err error
		switch {
		case !c.OK:
		case !c.Managed:
			_, err = fmt.Fprintf(w, "%s: job %q is valid and left to Nomad: %s\n", c.File, c.Job, c.Why)
		default:
			_, err = fmt.Fprintf(w, "%s: job %q is valid: members %d, GPUs %d, gang %s\n", c.File, c.Job, c.Members, c.GPUs, c.Gang)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
