package sim

import "math/bits"

func ones(mask uint64) int { return bits.OnesCount64(mask) }

func maskOf(gpus []int8) (mask uint64) {
	for _, g := range gpus {
		mask |= 1 << uint(g)
	}
	return mask
}

// indexes lists the bits that are set.
func indexes(mask uint64) []int8 {
	out := make([]int8, 0, bits.OnesCount64(mask))
	for ; mask != 0; mask &= mask - 1 {
		out = append(out, int8(bits.TrailingZeros64(mask)))
	}
	return out
}
