package report

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"html/template"
	"image"
	"image/color"
	"image/png"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/caravan-sched/caravan/planner/sim"
)

// palette is Okabe and Ito's, which the colour-blind can tell apart.
var palette = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {230, 159, 0, 255}, {86, 180, 233, 255}, {0, 0, 0, 255}, {150, 150, 150, 255},
}

const (
	width  = 9 * vg.Inch
	height = 3.2 * vg.Inch
)

// Line is one policy's line.
type Line struct {
	Name string
	XY   plotter.XYs
}

// plots draws all plots.
func plots(in Input) ([]plotted, error) {
	var out []plotted
	add := func(title, text, x, y string, logX bool, of func(*sim.Outcome) plotter.XYs) error {
		var lines []Line
		for _, policy := range in.Policies {
			if o := first(in, policy); o != nil {
				lines = append(lines, Line{policy, of(o)})
			}
		}
		svg, err := Chart(x, y, logX, lines)
		if err != nil {
			return fmt.Errorf("draw %s: %w", title, err)
		}
		out = append(out, plotted{Title: title, Text: text, SVG: template.HTML(svg)})
		return nil
	}
	gpus := float64(in.GPUs)
	err := add("Completion times", "The part of the cohort's jobs that are done within a time of their submission.", "hours from submission", "part of jobs", true, cdf)
	if err == nil {
		err = add("Utilisation", "GPUs whose whole gang has its own, as a part of all.", "days", "busy", false, over(func(s *sim.Sample) float64 { return float64(s.Busy) / gpus }))
	}
	if err == nil {
		err = add("Queue", "What the waiting jobs ask for, as a multiple of the cluster.", "days", "clusters", false, over(func(s *sim.Sample) float64 { return float64(s.WaitingGPUs) / gpus }))
	}
	if err == nil {
		err = add("Stranded GPUs", "Free GPUs that a waiting gang would fit on, now or if they were together.", "days", "part of all", false, over(func(s *sim.Sample) float64 { return float64(s.Fillable+s.Fragmented) / gpus }))
	}
	if err != nil {
		return nil, err
	}
	costs, err := deadlineCosts(in)
	if err != nil {
		return nil, fmt.Errorf("draw costs: %w", err)
	}
	return append(out, costs...), nil
}

// deadlineCosts draws what is paid against the deadlines that are met, a point for each
// seed; nothing where jobs have no deadlines.
func deadlineCosts(in Input) ([]plotted, error) {
	var hours, money []Line
	bought := false
	for _, policy := range in.Policies {
		h, m := Line{Name: policy}, Line{Name: policy}
		for i := range in.Results {
			r := &in.Results[i]
			if r.Policy == policy && r.Metrics.Deadlines > 0 {
				h.XY = append(h.XY, plotter.XY{X: r.Metrics.DeadlinesMet, Y: r.Metrics.CostPerRun})
				m.XY = append(m.XY, plotter.XY{X: r.Metrics.DeadlinesMet, Y: r.Metrics.BoughtPerRun})
				bought = bought || r.Metrics.Bought > 0
			}
		}
		if len(h.XY) > 0 {
			hours, money = append(hours, h), append(money, m)
		}
	}
	var out []plotted
	add := func(title, text, y string, lines []Line) error {
		svg, err := chart("part of the deadlines that are met", y, false, lines, true)
		if err == nil {
			out = append(out, plotted{Title: title, Text: text, SVG: template.HTML(svg), All: true})
		}
		return err
	}
	if len(hours) == 0 {
		return nil, nil
	}
	if err := add("Cost against deadlines", "GPU-hours of the whole cluster until the last job ended, for each job, against the part of the deadlines that were met. A point for each seed.", "GPU-hours per job", hours); err != nil || !bought {
		return out, err
	}
	err := add("Bought against deadlines", "What bought nodes have cost for each job, in the pools' currency, against the part of the deadlines that were met. A point for each seed.", "bought per job", money)
	return out, err
}

// cdf is the distribution of completion times, in hours.
func cdf(o *sim.Outcome) plotter.XYs {
	var times []float64
	for _, j := range o.Done() {
		if j.Cohort {
			times = append(times, max(j.Ended-j.Submit, 1)/3600)
		}
	}
	slices.Sort(times)
	step := max(1, len(times)/500)
	var out plotter.XYs
	for i := range times {
		if i%step == 0 || i == len(times)-1 {
			out = append(out, plotter.XY{X: times[i], Y: float64(i+1) / float64(len(times))})
		}
	}
	return out
}

// over is a quantity over time, as a moving average.
func over(of func(*sim.Sample) float64) func(*sim.Outcome) plotter.XYs {
	return func(o *sim.Outcome) plotter.XYs {
		const around = 6
		list := o.Samples()
		var out plotter.XYs
		for i := 0; i < len(list); i += 3 {
			sum, n := 0.0, 0
			for k := max(0, i-around); k <= min(len(list)-1, i+around); k++ {
				sum += of(&list[k])
				n++
			}
			out = append(out, plotter.XY{X: list[i].At / 86400, Y: sum / float64(n)})
		}
		return out
	}
}

// Chart draws lines as an SVG element.
func Chart(x, y string, logX bool, lines []Line) ([]byte, error) {
	return chart(x, y, logX, lines, false)
}

// chart draws lines, or their points alone.
func chart(x, y string, logX bool, lines []Line, points bool) ([]byte, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	// Without a line the axis is around 0, where there is no logarithm.
	if logX && slices.ContainsFunc(lines, func(l Line) bool { return len(l.XY) >= 2 }) {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	for i, l := range lines {
		if points {
			drawn, err := plotter.NewScatter(l.XY)
			if err != nil {
				return nil, err
			}
			drawn.Color, drawn.Radius, drawn.Shape = palette[i%len(palette)], vg.Points(3.5), draw.CircleGlyph{}
			p.Add(drawn)
			p.Legend.Add(l.Name, drawn)
			continue
		}
		if len(l.XY) < 2 {
			continue
		}
		drawn, err := plotter.NewLine(l.XY)
		if err != nil {
			return nil, err
		}
		drawn.Color, drawn.Width = palette[i%len(palette)], vg.Points(1.4)
		p.Add(drawn)
		p.Legend.Add(l.Name, drawn)
	}
	c := vgsvg.New(width, height)
	p.Draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	at := bytes.Index(b.Bytes(), []byte("<svg"))
	return b.Bytes()[max(0, at):], nil
}

// occupancy draws who had which GPU when: a row for each GPU, time to the right, a
// colour for each job.
func occupancy(o *sim.Outcome) ([]byte, error) {
	rows := 0
	for _, s := range o.Spans() {
		rows = max(rows, s.Row+1)
	}
	const columns = 1200
	img := image.NewRGBA(image.Rect(0, 0, columns, rows))
	for i := range img.Pix {
		img.Pix[i] = 245
	}
	end := max(o.End(), 1)
	for _, s := range o.Spans() {
		c := colorOf(s.Job)
		from, to := int(s.From/end*columns), int(math.Ceil(s.To/end*columns))
		for x := from; x < min(to, columns); x++ {
			img.SetRGBA(x, s.Row, c)
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		return nil, fmt.Errorf("draw occupancy: %w", err)
	}
	return b.Bytes(), nil
}

func colorOf(job int) color.RGBA {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, job) // a hash takes everything
	base, shade := palette[h.Sum32()%uint32(len(palette))], uint8(h.Sum32()>>24)%60
	mix := func(v uint8) uint8 { return uint8(min(255, int(v)+int(shade))) }
	return color.RGBA{mix(base.R), mix(base.G), mix(base.B), 255}
}
