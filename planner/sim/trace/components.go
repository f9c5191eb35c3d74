package trace

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// components joins those of a heterogeneous job of Slurm (123+0, 123+1, …): they start
// together, or none does, so that they are one gang. They stand behind each other where
// rows are in the order of jobs, as sacct prints them, with steps in between; so only
// one job is kept, however long the trace is.
type components struct {
	rep  *Report
	each func(Job) error
	// none: the form of the trace has none.
	none bool
	// of is the number of the job whose rows come now, "" of any other one, and first the
	// least of its components.
	of    string
	first int
	// job is what was joined of rows; parts of them have a part of a GPU.
	job         Job
	rows, parts int
	line        int
}

// component is how Slurm names one, and its steps.
var component = regexp.MustCompile(`^([0-9]+)\+([0-9]{1,6})(\.|$)`)

// errParts is why a heterogeneous job is left out.
const errParts = leftOut("it is a component of a heterogeneous job with a part of a GPU beside other GPUs: a job has one, or whole GPUs")

// next is told of every row, and hands out what was joined if it is of another job.
func (c *components) next(id string) error {
	of, number := "", 0
	if !c.none && strings.Contains(id, "+") {
		if m := component.FindStringSubmatch(id); m != nil {
			of = m[1]
			number, _ = strconv.Atoi(m[2]) // it is one, by its form
		}
	}
	if of != "" && of == c.of {
		c.first = min(c.first, number)
		return nil
	}
	err := c.end()
	c.of, c.first = strings.Clone(of), number
	return err
}

// add takes a row that is a job.
func (c *components) add(j Job, line int) error {
	if c.of == "" {
		c.rep.Jobs++
		return c.each(j)
	}
	if c.rows++; c.rows == 1 {
		c.job, c.line = j, line
	} else {
		c.job.GPUs += j.GPUs
		if c.job.GPUModels != j.GPUModels { // a gang is of one model
			c.job.GPUModels = ""
		}
		c.job.Submit, c.job.Duration = min(c.job.Submit, j.Submit), max(c.job.Duration, j.Duration)
	}
	if j.Share > 0 || j.Profile != "" {
		c.parts++
	}
	return nil
}

// end hands out what was joined.
func (c *components) end() error {
	if c.rows == 0 {
		return nil
	}
	j, rows, parts := c.job, c.rows, c.parts
	c.rows, c.parts = 0, 0
	if rows > 1 && parts > 0 {
		c.rep.leave(errParts, rows, c.line)
		return nil
	}
	if j.GPUs > maxGPUs {
		c.rep.breaks(rows, c.line, fmt.Errorf("job %s has %d GPUs in all of its components: want 1 to %d", c.of, j.GPUs, maxGPUs))
		return nil
	}
	if rows > 1 {
		j.ID = c.of
		c.rep.Joined += rows - 1
	}
	if c.first > 0 {
		c.rep.Apart += rows
	}
	c.rep.Jobs++
	return c.each(j)
}
