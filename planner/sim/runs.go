package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// FailedRun is a run that has come to no end: a job in it never starts, or never ends.
type FailedRun struct {
	Policy string
	Seed   int
	Err    error
}

// RowsError is the error for rows of a Comparison of which runs have come to no end,
// whatever the others came to.
type RowsError struct {
	// Runs are by seed, then in the order of the policies.
	Runs []FailedRun
}

// Error implements error: of each row it says the first run.
func (e *RowsError) Error() string { return strings.Join(e.Rows(), "; ") }

// Rows says of each row what went wrong in the first of its runs, and in how many more.
func (e *RowsError) Rows() (out []string) {
	more := map[string]int{}
	for i := range e.Runs {
		more[e.Runs[i].Policy]++
	}
	for i := range e.Runs {
		r := &e.Runs[i]
		if more[r.Policy] == 0 {
			continue
		}
		text := fmt.Sprintf("%s, seed %d: %v", r.Policy, r.Seed, r.Err)
		if others := more[r.Policy] - 1; others > 0 {
			text += fmt.Sprintf(" (other seeds that come to no end: %d)", others)
		}
		out, more[r.Policy] = append(out, text), 0
	}
	return out
}

// Unwrap returns what went wrong in each of the runs.
func (e *RowsError) Unwrap() (out []error) {
	for i := range e.Runs {
		out = append(out, e.Runs[i].Err)
	}
	return out
}

// Has reports whether a row is among them.
func (e *RowsError) Has(policy string) bool {
	return slices.ContainsFunc(e.Runs, func(r FailedRun) bool { return r.Policy == policy })
}

// endless reports whether an error is of one run alone, and no reason to end the others.
func endless(err error) bool {
	return errors.Is(err, ErrSetup) || errors.Is(err, ErrScheduler) || errors.Is(err, ErrWaits)
}

// Run plays all runs, several at once. The results are by seed, then in the order
// of the policies. The jobs of a seed are made when its turn comes, so that those of all
// seeds are never in memory together. Rows of which a run comes to no end are left out,
// and told by a RowsError beside the results of the others: means over other seeds than
// theirs could not be compared.
func (c *Comparison) Run(ctx context.Context) ([]Result, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	results, failed := make([]Result, c.Seeds*len(c.Policies)), make([]error, c.Seeds*len(c.Policies))
	var finished atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	workers := c.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	g.SetLimit(workers)
	for seed := range c.Seeds {
		first := seed * len(c.Policies)
		c.play(ctx, g, seed+1, results[first:], failed[first:], &finished)
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	rows := &RowsError{}
	for i, err := range failed {
		if err != nil {
			rows.Runs = append(rows.Runs, FailedRun{Policy: c.Policies[i%len(c.Policies)], Seed: i/len(c.Policies) + 1, Err: err})
		}
	}
	if len(rows.Runs) == 0 {
		return results, nil
	}
	return slices.DeleteFunc(results, func(r Result) bool { return r.Policy == "" || rows.Has(r.Policy) }), rows
}

// play begins the runs of a seed. The first of them makes the jobs.
func (c *Comparison) play(ctx context.Context, g *errgroup.Group, seed int, results []Result, failed []error, finished *atomic.Int64) {
	prepared := sync.OnceValues(func() ([]*Prepared, error) { return c.prepareRows(ctx, seed) })
	for k, policy := range c.Policies {
		g.Go(func() error {
			rows, err := prepared()
			if err != nil {
				return err
			}
			out, err := c.one(ctx, policy, seed, rows[k], finished)
			if endless(err) {
				failed[k] = err
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", policy, seed, err)
			}
			results[k] = Result{Policy: policy, Seed: seed, Metrics: out.Metrics(), Outcome: out}
			if c.Brief != nil && c.Brief(seed) {
				results[k].Outcome = out.brief()
			}
			return nil
		})
	}
}
