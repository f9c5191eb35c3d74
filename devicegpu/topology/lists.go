package topology

import (
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxListValue bounds CPU and NUMA numbers (Linux allows 8192 CPUs), and with
// them the memory that a list such as "0-999999999" may take.
const maxListValue = 1 << 14

// ParseList reads the kernel's list form, "0,3-9,11-17", into ascending
// numbers. "" and "N/A" are the empty list.
func ParseList(s string) ([]int, error) {
	if s = strings.TrimSpace(s); s == "" || s == "N/A" {
		return nil, nil
	}
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(strings.TrimSpace(part), "-")
		first, err := listNumber(lo)
		if err != nil {
			return nil, fmt.Errorf("read list %q: %w", s, err)
		}
		last := first
		if isRange {
			if last, err = listNumber(hi); err != nil {
				return nil, fmt.Errorf("read list %q: %w", s, err)
			}
		}
		if last < first {
			return nil, fmt.Errorf("read list %q: the range %q runs backwards", s, part)
		}
		if len(out)+last-first >= 2*maxListValue {
			return nil, fmt.Errorf("read list %q: too many numbers", s)
		}
		for v := first; v <= last; v++ {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func listNumber(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxListValue {
		return 0, fmt.Errorf("%q is not a number from 0 to %d", s, maxListValue)
	}
	return n, nil
}

// FormatList writes ascending numbers in the kernel's list form.
func FormatList(list []int) string {
	var b strings.Builder
	for i := 0; i < len(list); {
		end := i
		for end+1 < len(list) && list[end+1] == list[end]+1 {
			end++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(list[i]))
		if end > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(list[end]))
		}
		i = end + 1
	}
	return b.String()
}

// parseMask reads NCCL's CPU masks: 32-bit hexadecimal words, highest first,
// separated by commas.
func parseMask(s string) (string, error) {
	words := strings.Split(strings.TrimSpace(s), ",")
	if s == "" {
		return "", nil
	}
	if len(words)*32 > maxListValue {
		return "", fmt.Errorf("read CPU mask: %d words are too many", len(words))
	}
	var list []int
	for i := range words {
		word, err := strconv.ParseUint(words[len(words)-1-i], 16, 32)
		if err != nil {
			return "", fmt.Errorf("read CPU mask %q: %q is not a 32-bit hexadecimal word", s, words[len(words)-1-i])
		}
		for ; word != 0; word &= word - 1 {
			list = append(list, i*32+bits.TrailingZeros64(word))
		}
	}
	return FormatList(list), nil
}

// formatMask writes a list of CPUs as NCCL's mask; "" for none and for what is
// no list.
func formatMask(cpus string) string {
	list, err := ParseList(cpus)
	if err != nil || len(list) == 0 {
		return ""
	}
	words := make([]uint32, slices.Max(list)/32+1)
	for _, c := range list {
		words[len(words)-1-c/32] |= 1 << (c % 32)
	}
	text := make([]string, 0, len(words))
	for _, w := range words {
		text = append(text, fmt.Sprintf("%08x", w))
	}
	return strings.Join(text, ",")
}

var busIDForm = regexp.MustCompile(`^(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.([0-7]))?$`)

// NormalizeBusID returns a PCI address in the kernel's form: lower case, a
// domain of at least four digits ("0000:18:00.0"). NVML writes eight digits;
// a missing function is 0.
func NormalizeBusID(s string) (string, error) {
	f := busIDForm.FindStringSubmatch(strings.TrimSpace(s))
	if f == nil {
		return "", fmt.Errorf("read PCI bus ID %q: want the form 0000:18:00.0", s)
	}
	var part [4]uint64
	for i, digits := range f[1:] {
		if digits != "" {
			part[i], _ = strconv.ParseUint(digits, 16, 32) // the form allows nothing else
		}
	}
	if part[2] > 31 {
		return "", fmt.Errorf("read PCI bus ID %q: device %#x is above 1f", s, part[2])
	}
	return formatBusID(part[0]<<16 | part[1]<<8 | part[2]<<3 | part[3]), nil
}

func formatBusID(n uint64) string {
	return fmt.Sprintf("%04x:%02x:%02x.%d", n>>16, n>>8&0xff, n>>3&0x1f, n&7)
}

// packBusID is the inverse of formatBusID for a canonical address.
func packBusID(s string) uint64 {
	f := busIDForm.FindStringSubmatch(s)
	domain, _ := strconv.ParseUint(f[1], 16, 32)
	bus, _ := strconv.ParseUint(f[2], 16, 8)
	dev, _ := strconv.ParseUint(f[3], 16, 8)
	return domain<<16 | bus<<8 | dev<<3 | uint64(f[4][0]-'0')
}

func canonicalBusID(s string) bool {
	if s == "" {
		return true
	}
	n, err := NormalizeBusID(s)
	return err == nil && n == s
}
