package rendezvous

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What a membership may be at most. They are far above real gangs: they keep
// nonsense from being written into files and environments, which have limits of
// their own.
const (
	MaxMembers   = 1 << 16
	MaxProcesses = 1 << 12
	// MaxWorld bounds the sum of all members' processes.
	MaxWorld   = 1 << 20
	maxNameLen = 1024
)

// Fault is one value of a membership that cannot be used.
type Fault struct {
	// Where is "membership" or `member N`, N counting from 0.
	Where string
	// Key is the value's name in JSON.
	Key   string
	Value string
	// Allowed says what could stand there instead.
	Allowed string
}

// String is one sentence for people.
func (f Fault) String() string {
	return fmt.Sprintf("%s: %s = %q: %s", f.Where, f.Key, f.Value, f.Allowed)
}

// maxShown bounds how many faults are spelled out: a membership of thousands
// that is wrong throughout makes no message of megabytes.
const maxShown = 20

// Error holds every fault of a membership. It is what Validate returns.
type Error struct {
	Faults []Fault
}

// Error lists the faults, the first of them if there are very many.
func (e *Error) Error() string {
	texts := make([]string, 0, maxShown+1)
	for i, f := range e.Faults {
		if i == maxShown {
			texts = append(texts, fmt.Sprintf("and %d more", len(e.Faults)-i))
			break
		}
		texts = append(texts, f.String())
	}
	return "check membership: " + strings.Join(texts, "; ")
}

// Validate returns an *Error with every fault of a membership, nil if it can be
// used. What it lets through is safe to put into environment variables and host
// files.
func Validate(m Membership) error {
	c := &checker{where: "membership"}
	c.name("epoch", m.Epoch)
	c.between("generation", m.Generation, 1, 1<<31-1)
	c.name("namespace", m.Namespace)
	c.name("job", m.Job)
	c.optional("gang", m.Gang)
	c.address("master_addr", m.MasterAddr)
	c.between("master_port", m.MasterPort, 1, 65535)
	c.between("min", m.Min, 1, MaxMembers)
	c.between("max", m.Max, 1, MaxMembers)
	if len(m.Members) < max(1, m.Min) || len(m.Members) > m.Max {
		c.fault("members", strconv.Itoa(len(m.Members)), fmt.Sprintf("as many as min (%d) to max (%d), and at least one", m.Min, m.Max))
	}
	if len(m.Members) <= MaxMembers {
		c.members(m.Members)
	}
	if len(c.faults) == 0 {
		return nil
	}
	return &Error{Faults: c.faults}
}

type checker struct {
	where  string
	faults []Fault
}

func (c *checker) fault(key, value, allowed string) {
	if len(value) > 200 {
		value = strings.ToValidUTF8(value[:200], "") + "…"
	}
	c.faults = append(c.faults, Fault{Where: c.where, Key: key, Value: value, Allowed: allowed})
}

func (c *checker) name(key, value string) {
	if value == "" {
		c.fault(key, value, "must not be empty")
	}
	c.optional(key, value)
}

func (c *checker) optional(key, value string) {
	switch {
	case len(value) > maxNameLen:
		c.fault(key, value, fmt.Sprintf("at most %d bytes", maxNameLen))
	case !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
		c.fault(key, value, "valid UTF-8 without control characters")
	}
}

func (c *checker) between(key string, value, least, most int) {
	if value < least || value > most {
		c.fault(key, strconv.Itoa(value), fmt.Sprintf("from %d to %d", least, most))
	}
}

func (c *checker) address(key, value string) {
	addr, err := netip.ParseAddr(value)
	if err != nil || addr.IsUnspecified() || addr.IsMulticast() || addr.Zone() != "" {
		c.fault(key, value, "the IP address of one host, without a zone")
	}
}

func (c *checker) members(members []Member) {
	type place struct {
		group string
		index int
	}
	world := 0
	allocs, places, gpus, names := map[string]int{}, map[place]int{}, map[string]int{}, map[string]string{}
	for i, m := range members {
		c.where = "member " + strconv.Itoa(i)
		c.member(m)
		if other, ok := allocs[m.Alloc]; ok {
			c.fault("alloc", m.Alloc, fmt.Sprintf("member %d has it", other))
		}
		allocs[m.Alloc] = i
		at := place{m.Group, m.Index}
		if other, ok := places[at]; ok {
			c.fault("index", strconv.Itoa(m.Index), fmt.Sprintf("member %d has it in group %q", other, m.Group))
		}
		places[at] = i
		for _, gpu := range m.GPUs {
			if other, ok := gpus[gpu]; ok {
				c.fault("gpus", gpu, fmt.Sprintf("member %d has it", other))
			}
			gpus[gpu] = i
		}
		if name, ok := names[m.Node]; ok && name != m.NodeName {
			c.fault("node_name", m.NodeName, fmt.Sprintf("the node's name is %q too", name))
		}
		names[m.Node] = m.NodeName
		world += min(max(m.Processes, 0), MaxProcesses)
	}
	c.where = "membership"
	if world > MaxWorld {
		c.fault("members", strconv.Itoa(world), fmt.Sprintf("at most %d processes in all", MaxWorld))
	}
}

func (c *checker) member(m Member) {
	c.name("group", m.Group)
	c.between("index", m.Index, 0, 1<<31-1)
	c.name("alloc", m.Alloc)
	c.name("node", m.Node)
	c.optional("node_name", m.NodeName)
	c.address("address", m.Address)
	c.between("processes", m.Processes, 1, MaxProcesses)
	for _, gpu := range m.GPUs {
		c.name("gpus", gpu)
		if strings.ContainsAny(gpu, ", \t") {
			c.fault("gpus", gpu, "a UUID")
		}
	}
}
