package nvml

import (
	"fmt"
	"strconv"
	"strings"
)

// parseMIGMinors reads the kernel's table of MIG capabilities, lines such as
// "gpu0/gi1/ci0/access 13". What it cannot read it leaves out.
func parseMIGMinors(text string) map[string]int {
	minors := map[string]int{}
	for line := range strings.Lines(text) {
		name, number, ok := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.Atoi(strings.TrimSpace(number)); ok && err == nil && n >= 0 {
			minors[name] = n
		}
	}
	return minors
}

// capsOf lists the device nodes that give access to an instance: the GPU
// instance's and the compute instance's.
func capsOf(minors map[string]int, gpuMinor int, inst Instance) []int {
	var caps []int
	gi := fmt.Sprintf("gpu%d/gi%d", gpuMinor, inst.GPUInstance)
	for _, name := range []string{gi + "/access", fmt.Sprintf("%s/ci%d/access", gi, inst.ComputeInstance)} {
		if n, ok := minors[name]; ok {
			caps = append(caps, n)
		}
	}
	return caps
}
