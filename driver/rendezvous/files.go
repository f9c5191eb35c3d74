package rendezvous

import (
	"encoding/json"
	"fmt"
	"strings"
)

// HostFile is the membership as Open MPI's host file: one "ADDRESS slots=N" a
// line, in the order of ranks, N being the ranks on that host. Members that
// share an address share a line, as Open MPI would count them.
func HostFile(m Membership) string {
	return hosts(m, func(member Member) int { return member.Processes })
}

// DeepSpeedHostFile is the same in DeepSpeed's form. Its launcher starts one
// process for each slot and gives it the GPU of that number, so slots are GPUs;
// members without any have one for each process.
func DeepSpeedHostFile(m Membership) string {
	return hosts(m, func(member Member) int {
		if len(member.GPUs) > 0 {
			return len(member.GPUs)
		}
		return member.Processes
	})
}

func hosts(m Membership, count func(Member) int) string {
	var order []string
	slots := map[string]int{}
	for _, member := range m.Members {
		if _, ok := slots[member.Address]; !ok {
			order = append(order, member.Address)
		}
		slots[member.Address] += count(member)
	}
	var b strings.Builder
	for _, address := range order {
		fmt.Fprintf(&b, "%s slots=%d\n", address, slots[address])
	}
	return b.String()
}

// JSON is the membership file.
func JSON(m Membership) ([]byte, error) {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode membership: %w", err)
	}
	return append(b, '\n'), nil
}

// Decode reads a membership file and validates it. Keys that it does not know
// are let through: a newer planner may send more.
func Decode(b []byte) (Membership, error) {
	var m Membership
	if err := json.Unmarshal(b, &m); err != nil {
		return Membership{}, fmt.Errorf("decode membership: %w", err)
	}
	if err := Validate(m); err != nil {
		return Membership{}, err
	}
	return m, nil
}
