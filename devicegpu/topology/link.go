package topology

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Kind is how two devices are joined, in nvidia-smi's words.
type Kind string

// The kinds, nearest first.
const (
	KindSelf Kind = "X"
	// KindNVLink and KindXGMI come with a number of links: NV18, XGMI1.
	KindNVLink Kind = "NV"
	KindXGMI   Kind = "XGMI"
	KindPIX    Kind = "PIX"  // at most one PCIe bridge
	KindPXB    Kind = "PXB"  // several PCIe bridges, not the host bridge
	KindPHB    Kind = "PHB"  // the CPU's PCIe host bridge
	KindNode   Kind = "NODE" // host bridges of one NUMA node
	KindSys    Kind = "SYS"  // between NUMA nodes
	// KindUnknown is what a source does not say.
	KindUnknown Kind = ""
)

// pcieKinds lists the kinds that a path over PCIe may have, for messages.
const pcieKinds = "PIX, PXB, PHB, NODE, SYS or nothing"

// kindCode are the codes of the attribute's binary form; never change one.
var kindCode = map[Kind]uint64{
	KindUnknown: 0, KindSelf: 1, KindNVLink: 2, KindXGMI: 3,
	KindPIX: 4, KindPXB: 5, KindPHB: 6, KindNode: 7, KindSys: 8,
}

// Fast reports whether the kind joins GPUs past PCIe: NVLink or XGMI.
func (k Kind) Fast() bool { return k == KindNVLink || k == KindXGMI }

// Distance orders the kinds from near to far; unknown is farthest.
func (k Kind) Distance() int {
	if k == KindUnknown {
		return len(kindCode)
	}
	return int(kindCode[k])
}

// sharesSwitch reports whether the path stays below the CPU's host bridge.
func (k Kind) sharesSwitch() bool { return k == KindPIX || k == KindPXB }

// Link is the connection between two GPUs.
type Link struct {
	Kind Kind
	// Count is the number of NVLinks or XGMI links, 0 for the other kinds.
	Count int
	// GBs is the bandwidth per direction in GB/s (10^9 bytes), 0 if unknown.
	GBs float64
}

// maxLinkCount and maxGBs bound what is believed of a link: no GPU has as many
// links, or as fast ones.
const (
	maxLinkCount = 255
	maxGBs       = 1e6
)

// String returns the link's name as nvidia-smi prints it: "NV18", "PIX".
func (l Link) String() string {
	switch {
	case l.Kind == KindUnknown:
		return "?"
	case l.Kind.Fast():
		return string(l.Kind) + strconv.Itoa(l.Count)
	}
	return string(l.Kind)
}

// MarshalJSON writes {"kind":"NV18","gb_s":450}.
func (l Link) MarshalJSON() ([]byte, error) {
	if l.GBs == 0 {
		return fmt.Appendf(nil, `{"kind":%q}`, l.String()), nil
	}
	return fmt.Appendf(nil, `{"kind":%q,"gb_s":%s}`, l.String(), strconv.FormatFloat(l.GBs, 'g', -1, 64)), nil
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (l *Link) UnmarshalJSON(data []byte) error {
	var v struct {
		Kind string  `json:"kind"`
		GBs  float64 `json:"gb_s"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	parsed, err := ParseLink(v.Kind)
	if err != nil {
		return err
	}
	*l = Link{Kind: parsed.Kind, Count: parsed.Count, GBs: v.GBs}
	return nil
}

// ParseLink reads a link's name as nvidia-smi prints it; the bandwidth is left
// unknown. SOC is an old name for SYS.
func ParseLink(s string) (Link, error) {
	switch k := Kind(s); k {
	case KindSelf, KindPIX, KindPXB, KindPHB, KindNode, KindSys:
		return Link{Kind: k}, nil
	}
	switch s {
	case "SOC":
		return Link{Kind: KindSys}, nil
	case "N/A", "?":
		return Link{}, nil
	}
	for _, k := range []Kind{KindXGMI, KindNVLink} {
		digits, ok := strings.CutPrefix(s, string(k))
		if !ok {
			continue
		}
		if n, err := strconv.Atoi(digits); err == nil && n > 0 && n <= maxLinkCount {
			return Link{Kind: k, Count: n}, nil
		}
	}
	return Link{}, fmt.Errorf("unknown link %q: want X, NV#, XGMI#, PIX, PXB, PHB, NODE or SYS", s)
}

func (l Link) validate(diagonal bool) error {
	_, known := kindCode[l.Kind]
	switch {
	case !known:
		return fmt.Errorf("unknown kind %q", string(l.Kind))
	case diagonal != (l.Kind == KindSelf):
		return fmt.Errorf("kind %s: a GPU is X to itself and to no other", l)
	case l.Kind.Fast() && (l.Count < 1 || l.Count > maxLinkCount):
		return fmt.Errorf("%d links: want 1 to %d", l.Count, maxLinkCount)
	case !l.Kind.Fast() && l.Count != 0:
		return fmt.Errorf("kind %s with a count of %d", l.Kind, l.Count)
	case !(l.GBs >= 0 && l.GBs <= maxGBs): // not a number is neither
		return fmt.Errorf("bandwidth of %g GB/s: want 0 to %g", l.GBs, float64(maxGBs))
	}
	return nil
}
