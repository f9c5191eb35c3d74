package render

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// Name is a job's name, with its namespace unless that is the default.
func Name(namespace, job string) string {
	if namespace == "" || namespace == "default" {
		return job
	}
	return namespace + "/" + job
}

// Queue writes the jobs that wait.
func Queue(w io.Writer, s Style, jobs []httpapi.Job) error {
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(w, "No job waits.")
		return err
	}
	g := newGrid("POS", "JOB", "QUEUE", "PRIORITY", "GANG", "PLACED", "GPUS", "WAITS", "REASON")
	for _, j := range jobs {
		position := nonZero(j.Position)
		if position == "" {
			position = "-"
		}
		g.add(position, Name(j.Namespace, j.ID), j.Queue, strconv.Itoa(j.Priority), string(j.Gang),
			fmt.Sprintf("%d/%d", j.Placed, j.Members), heldGPUs(j), s.age(j.Submitted), withWork(j))
	}
	return g.write(w, "")
}

// heldGPUs are those that a job asks for, and before them those that it holds, where
// these are others.
func heldGPUs(j httpapi.Job) string {
	if j.HeldGPUs == 0 || j.HeldGPUs == j.GPUs {
		return strconv.Itoa(j.GPUs)
	}
	return fmt.Sprintf("%d/%d", j.HeldGPUs, j.GPUs)
}

// withWork is why a job waits, and how the part of it is that is placed.
func withWork(j httpapi.Job) string {
	if j.Work == "" {
		return j.Reason
	}
	return j.Reason + "; placed: " + j.Work
}

// Jobs writes all managed jobs.
func Jobs(w io.Writer, s Style, jobs []httpapi.Job) error {
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(w, "No managed job.")
		return err
	}
	g := newGrid("JOB", "TYPE", "STATE", "QUEUE", "GANG", "PLACED", "GPUS", "AGE", "WORK")
	for _, j := range jobs {
		state := s.state(string(j.State))
		if j.Released {
			state = "released"
		}
		g.add(Name(j.Namespace, j.ID), j.Type, state, j.Queue, string(j.Gang),
			fmt.Sprintf("%d/%d", j.Placed, j.Members), heldGPUs(j), s.age(j.Submitted), j.Work)
	}
	return g.write(w, "")
}

// Status writes how the planner is.
func Status(w io.Writer, s Style, st httpapi.Status) error {
	g := newGrid()
	role := "standing by"
	if st.Leader {
		role = "leader"
	}
	if !st.Leader && st.LeaderAddress != "" {
		role += "; the leader is " + st.LeaderAddress
	}
	if st.ObserveOnly {
		role += ", observing only"
	}
	g.add("Planner", st.Version+", "+role+", policy "+st.Policy)
	if st.Predictions != "" {
		g.add("Run times", st.Predictions)
	}
	if st.Waiting != "" {
		g.add("Waits", st.Waiting)
	}
	nomad := st.Nomad.Address
	if st.Nomad.OK {
		nomad += ", " + s.paint(green, "reachable")
	} else if st.Nomad.Since.IsZero() {
		nomad += ", being asked for the first time"
	} else {
		nomad += ", " + s.paint(red, "not reachable")
		if !st.Nomad.Since.IsZero() {
			nomad += " for " + s.age(st.Nomad.Since)
		}
		if st.Nomad.Error != "" {
			nomad += ": " + st.Nomad.Error
		}
	}
	g.add("Nomad", nomad)
	for _, r := range st.Regions {
		text := r.Name + ", " + s.paint(green, "decided on")
		if r.Held != "" {
			text = r.Name + ", " + s.paint(yellow, "held") + " for " + s.age(r.Since)
		}
		g.add("Region", text)
	}
	if st.ViewTaken.IsZero() {
		g.add("Cluster", "not seen yet")
	} else {
		c := st.Counts
		gpus := fmt.Sprintf("%s, %s, %d free", count(c.Nodes, "node"), count(c.GPUs, "GPU"), c.FreeGPUs)
		if c.UnhealthyGPUs > 0 {
			gpus += ", " + s.paint(red, fmt.Sprintf("%d unhealthy", c.UnhealthyGPUs))
		}
		g.add("Cluster", gpus)
		g.add("Jobs", fmt.Sprintf("%d queued, %d being placed, %d running", c.Queued, c.Admitted, c.Running))
	}
	if !st.Decided.IsZero() {
		g.add("Decided", s.age(st.Decided)+" ago")
	}
	for _, warning := range st.Warnings {
		g.add(s.paint(yellow, "Warning"), warning.Subject+": "+warning.Text)
	}
	return g.write(w, "")
}

// Explain writes what was decided on a job, and why.
func Explain(w io.Writer, s Style, e httpapi.Explain) error {
	g := newGrid()
	what := []string{}
	for _, part := range []string{e.Type, label("gang ", string(e.Gang)), label("queue ", e.Queue), label("priority ", nonZero(e.Priority))} {
		if part != "" {
			what = append(what, part)
		}
	}
	g.add("Job", s.paint(bold, Name(e.Namespace, e.ID))+parens(strings.Join(what, ", ")))
	g.add("State", stateLine(s, e))
	switch {
	case e.Home != "":
		g.add("Region", e.Region+", sent from "+e.Home)
	case e.Region != "":
		g.add("Region", e.Region)
	}
	if !e.Submitted.IsZero() {
		g.add("Submitted", clock(e.Submitted)+", "+s.age(e.Submitted)+" ago")
	}
	if e.RunTime != "" {
		g.add("Run time", e.RunTime)
	}
	switch {
	case e.Action != "":
		g.add("Decision", decision(s, string(e.Action), e.Reason))
	case e.Reason != "":
		g.add("Reason", decision(s, "", e.Reason))
	}
	detail(g, s, e.Action, e.Detail)
	if e.Speed != nil {
		g.add("Speed", strings.ReplaceAll(e.Speed.Text, "; ", ";\n"))
	}
	if e.Attempts > 0 {
		text := count(e.Attempts, "admission") + " failed"
		if !e.RetryAfter.IsZero() {
			text += ", the next not before " + clock(e.RetryAfter)
		}
		g.add("Attempts", text)
	}
	for _, f := range e.Faults {
		g.add(s.paint(red, "Fault"), f)
	}
	if err := g.write(w, ""); err != nil {
		return err
	}
	if err := burst(w, e.Detail.Burst); err != nil {
		return err
	}
	if err := placement(w, s, e.Placement); err != nil {
		return err
	}
	if err := gangs(w, s, e.Gangs); err != nil {
		return err
	}
	return history(w, s, e.History)
}

func stateLine(s Style, e httpapi.Explain) string {
	text := s.state(string(e.State))
	if e.Released {
		text = "released: Caravan leaves it alone"
	}
	if e.Position > 0 {
		text += fmt.Sprintf(", number %d in the queue", e.Position)
	}
	switch {
	case e.Placed > e.Members:
		text += fmt.Sprintf(", %s placed, %d more than it asks for", count(e.Placed, "member"), e.Placed-e.Members)
	case e.Members > 0:
		text += fmt.Sprintf(", %d of %s placed", e.Placed, count(e.Members, "member"))
	}
	return text
}

func decision(s Style, action, reason string) string {
	code := yellow
	if action == string(model.ActionAdmit) {
		code = green
	}
	// A reason has several parts; each gets a line of its own.
	reason = strings.ReplaceAll(reason, "; ", ";\n")
	switch {
	case action == "":
		return reason
	case reason == "":
		return s.paint(code, action)
	}
	return s.paint(code, action) + ": " + reason
}

// detail adds a reason's numbers.
func detail(g *grid, s Style, action model.Action, d model.Detail) {
	where := ""
	if d.Domain != "" {
		where = " in " + strings.TrimSpace(d.Level+" "+d.Domain)
	}
	if d.MembersWanted > 0 || d.WantedGPUs > 0 {
		g.add("Wanted", count(d.MembersWanted, "member")+", "+count(d.WantedGPUs, "GPU"))
		fits := "Fits"
		if action == model.ActionAdmit {
			fits = "Placed"
		}
		g.add(fits, count(d.MembersFit, "member")+where)
	}
	if action == model.ActionWait && d.WantedGPUs > 0 {
		g.add("Free", count(d.FreeGPUs, "GPU")+" of the kind asked for")
	}
	if d.Basis != "" && d.Start.IsZero() { // a start that is known is in the reason
		g.add("Start", d.Basis)
	}
	if d.Ahead > 0 {
		g.add("Ahead", count(d.Ahead, "job"))
	}
	for _, reason := range slices.Sorted(maps.Keys(d.Filtered)) {
		g.add("Filtered", count(d.Filtered[reason], "node")+": "+reason)
	}
	if len(d.Held) > 0 {
		held := make([]string, len(d.Held))
		for i, node := range d.Held {
			held[i] = s.node(node)
		}
		g.add("Held", count(len(held), "node")+": "+strings.Join(held, ", "))
	}
}

// placement writes where members are.
func placement(w io.Writer, s Style, placed []httpapi.Placed) error {
	if len(placed) == 0 {
		return nil
	}
	g := newGrid("RANK", "GROUP", "INDEX", "NODE", "STATE", "GPUS")
	for _, p := range placed {
		node := p.NodeName
		if node == "" {
			node = s.node(p.Node)
		}
		gpus := make([]string, len(p.GPUs))
		for i, uuid := range p.GPUs {
			gpus[i] = s.gpu(uuid)
		}
		g.add(strconv.Itoa(p.Rank), p.Group, strconv.Itoa(p.Index), node, s.state(p.State), strings.Join(gpus, " "))
	}
	if _, err := fmt.Fprintln(w, "\n"+s.paint(bold, "Members")); err != nil {
		return err
	}
	return g.write(w, "")
}

func history(w io.Writer, s Style, past []httpapi.Past) error {
	if len(past) == 0 {
		return nil
	}
	g := newGrid("AGO", "DECISION", "REASON")
	for _, p := range past {
		g.add(s.age(p.At), string(p.Action), p.Reason)
	}
	if _, err := fmt.Fprintln(w, "\n"+s.paint(bold, "Before that")); err != nil {
		return err
	}
	return g.write(w, "")
}

// Released writes what became of jobs that were released.
func Released(w io.Writer, s Style, r httpapi.ReleaseResult) error {
	if len(r.Jobs) == 0 {
		_, err := fmt.Fprintln(w, "No managed job, so there is nothing to release.")
		return err
	}
	g := newGrid("JOB", "RELEASED", "NOTE")
	for _, j := range r.Jobs {
		done := s.paint(green, "yes")
		if !j.Done {
			done = s.paint(red, "no")
		}
		g.add(Name(j.Namespace, j.Job), done, j.Note)
	}
	return g.write(w, "")
}

func label(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func nonZero(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func parens(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// Decisions writes a plan.
func Decisions(w io.Writer, s Style, decisions []model.Decision) error {
	if len(decisions) == 0 {
		_, err := fmt.Fprintln(w, "No job waits for a decision.")
		return err
	}
	for i, d := range decisions {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		g := newGrid()
		g.add("Job", s.paint(bold, Name(d.Namespace, d.Job)))
		g.add("Decision", decision(s, string(d.Action), d.Reason))
		detail(g, s, d.Action, d.Detail)
		if err := g.write(w, ""); err != nil {
			return err
		}
		placed := make([]httpapi.Placed, len(d.Members))
		for k, m := range d.Members {
			placed[k] = httpapi.Placed{Member: m, State: "planned"}
		}
		if err := placement(w, s, placed); err != nil {
			return err
		}
	}
	return nil
}
