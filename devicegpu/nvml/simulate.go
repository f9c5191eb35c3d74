package nvml

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// simulation divides the GPUs of a simulated source, and makes them ill.
type simulation struct {
	Source
	// mig are the profiles by GPU.
	mig  map[int][]string
	seed string
	// faults is the path of the file with the faults; "" for none.
	faults string

	// mu guards mig too.
	mu sync.Mutex
	// told are the XIDs that were reported, by GPU.
	told   map[simulatedXID]bool
	events chan Event
}

type simulatedXID struct {
	gpu int
	xid uint64
}

// simulate puts a simulation over a source, if the spec wants one.
func simulate(source Source, spec Spec) (Source, error) {
	if len(spec.MIG) == 0 && spec.Faults == "" && !(spec.Divides && source.Simulated()) {
		return source, nil
	}
	if !source.Simulated() {
		return nil, fmt.Errorf("simulate MIG instances or faults: the GPUs of %q are real", spec.Source)
	}
	mig, err := ParseMIG(spec.MIG)
	if err != nil {
		return nil, err
	}
	return &simulation{
		Source: source, mig: mig, seed: spec.Seed + " " + spec.Source, faults: spec.Faults,
		told: map[simulatedXID]bool{}, events: make(chan Event, 64),
	}, nil
}

// Inventory implements Source.
func (s *simulation) Inventory() (Inventory, error) {
	inv, err := s.Source.Inventory()
	if err != nil {
		return inv, err
	}
	inv.GPUs = slices.Clone(inv.GPUs)
	s.mu.Lock()
	division := maps.Clone(s.mig)
	s.mu.Unlock()
	for _, i := range slices.Sorted(maps.Keys(division)) {
		profiles := division[i]
		if i < len(inv.GPUs) {
			s.divide(&inv, i, profiles)
		} else {
			inv.problem("there is no GPU %d to be divided", i)
		}
	}
	if s.faults == "" {
		return inv, nil
	}
	text, err := os.ReadFile(s.faults)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return inv, fmt.Errorf("read simulated faults: %w", err)
	}
	faults, err := parseFaults(string(text))
	if err != nil {
		inv.problem("%v", err)
	}
	for _, f := range faults {
		if f.kind == "driver" {
			return Inventory{}, errors.New("the driver does not answer (simulated)")
		}
		if f.gpu >= len(inv.GPUs) {
			inv.problem("there is no GPU %d to have a fault", f.gpu)
			continue
		}
		s.inflict(&inv, f)
	}
	return inv, nil
}

// Events implements Source.
func (s *simulation) Events(ctx context.Context, got func(Event)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-s.events:
			got(e)
		}
	}
}

func (s *simulation) divide(inv *Inventory, i int, profiles []string) {
	g := &inv.GPUs[i]
	g.MIG = ptr(len(profiles) > 0)
	g.Instances = nil
	for n, profile := range profiles {
		slots, gb, _ := profileSize(profile) // it was read before
		uuid := strings.Replace(stableUUID(s.seed, profile, i*maxSlices+n), "GPU-", "MIG-", 1)
		g.Instances = append(g.Instances, Instance{
			UUID: uuid, Model: inv.Matrix.GPUs[i].Model + " MIG " + profile, Profile: profile,
			GPUInstance: n + 1, MemoryMiB: ptr(gb * 1024), Slices: ptr(slots),
		})
	}
}

func (s *simulation) inflict(inv *Inventory, f simulatedFault) {
	h := &inv.GPUs[f.gpu].Health
	switch f.kind {
	case "lost":
		*h = Health{Lost: "the GPU has fallen off the bus"}
	case "silent":
		*h = Health{Silent: "NVML error 999"}
	case "ecc":
		h.UncorrectedVolatile = ptr(max(f.number, 1))
	case "sram":
		h.SRAMThreshold = ptr(true)
	case "remap_pending":
		h.RemapPending = ptr(true)
	case "remap_failed":
		h.RemapFailed = ptr(true)
	case "retired_pending":
		h.RetiredPending = ptr(true)
	case "mig_pending":
		h.MIGPending = ptr(true)
	case "fabric":
		h.Fabric = FabricInProgress
	case "nvlink":
		down := min(int(max(f.number, 1)), h.LinksActive)
		h.LinksActive, h.LinksInactive = h.LinksActive-down, h.LinksInactive+down
		h.LinksToSwitches = max(h.LinksToSwitches-down, 0)
	case "xid":
		s.report(simulatedXID{f.gpu, f.number}, inv.Matrix.GPUs[f.gpu].UUID)
	}
}

// report reports an XID once, as a driver does.
func (s *simulation) report(x simulatedXID, uuid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told[x] {
		return
	}
	select {
	case s.events <- Event{UUID: uuid, XID: x.xid}:
		s.told[x] = true
	default: // nobody listens yet; the next look tries again
	}
}

// maxSlices is how many compute slices a GPU can be divided into.
const maxSlices = 7

var (
	migForm     = regexp.MustCompile(`^([0-9]{1,3}):(.+)$`)
	profileForm = regexp.MustCompile(`^([1-7])g\.([1-9][0-9]{0,3})gb$`)
)

// ParseMIG reads how simulated GPUs are divided, "0:3g.20gb,3g.20gb". Its error
// tells every fault.
func ParseMIG(entries []string) (map[int][]string, error) {
	out := map[int][]string{}
	var errs []error
	for i, entry := range entries {
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("mock_mig[%d] = %q: %s", i, entry, fmt.Sprintf(format, args...)))
		}
		f := migForm.FindStringSubmatch(entry)
		if f == nil {
			fail("want a GPU's index and profiles, such as \"0:3g.20gb,3g.20gb\"")
			continue
		}
		gpu, _ := strconv.Atoi(f[1]) // the form allows nothing else
		if out[gpu] != nil {
			fail("GPU %d is divided twice", gpu)
		}
		profiles, used := strings.Split(f[2], ","), uint64(0)
		for _, p := range profiles {
			slots, _, ok := profileSize(p)
			if !ok {
				fail("%q is no profile such as 3g.20gb", p)
			}
			used += slots
		}
		if used > maxSlices {
			fail("%d slices, and a GPU has %d", used, maxSlices)
		}
		out[gpu] = profiles
	}
	return out, errors.Join(errs...)
}

func profileSize(profile string) (slots, gb uint64, ok bool) {
	f := profileForm.FindStringSubmatch(profile)
	if f == nil {
		return 0, 0, false
	}
	slots, _ = strconv.ParseUint(f[1], 10, 64) // the form allows nothing else
	gb, _ = strconv.ParseUint(f[2], 10, 64)
	return slots, gb, true
}

// simulatedFault is a line of a file of faults.
type simulatedFault struct {
	gpu    int
	kind   string
	number uint64
}

var simulatedKinds = []string{"busy", "driver", "ecc", "fabric", "lost", "mig_pending", "mig_refused", "nvlink", "remap_failed", "remap_pending", "retired_pending", "silent", "sram", "xid"}

// parseFaults reads lines of a GPU's index, a fault and, for some, a number:
// "3 xid 79". A driver that does not answer is "* driver". What stands behind
// a # is a comment. It returns what it can read beside the error.
func parseFaults(text string) ([]simulatedFault, error) {
	var out []simulatedFault
	var errs []error
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		f, err := parseFault(words)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d of the simulated faults: %w", number, err))
			continue
		}
		out = append(out, f)
	}
	return out, errors.Join(errs...)
}

func parseFault(words []string) (simulatedFault, error) {
	f := simulatedFault{}
	if len(words) < 2 || len(words) > 3 || !slices.Contains(simulatedKinds, words[1]) {
		return f, fmt.Errorf("want a GPU's index, one of %s, and a number for some", strings.Join(simulatedKinds, ", "))
	}
	f.kind = words[1]
	if words[0] != "*" || f.kind != "driver" {
		n, err := strconv.ParseUint(words[0], 10, 8)
		if err != nil {
			return f, fmt.Errorf("%q is no GPU's index", words[0])
		}
		f.gpu = int(n)
	}
	if len(words) == 3 {
		n, err := strconv.ParseUint(words[2], 10, 31)
		if err != nil {
			return f, fmt.Errorf("%q is no number", words[2])
		}
		f.number = n
	}
	if f.kind == "xid" && f.number == 0 {
		return f, errors.New("which XID?")
	}
	return f, nil
}
