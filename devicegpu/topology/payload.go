package topology

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"strings"
)

// The payload of format ct1. Numbers are unsigned varints unless noted; a text
// is a number: 0 is "", n+1 is the n-th text of the table.
//
//	texts   count, then each: length, bytes
//	gpus    count, then each: id, bus, text model, text numa list, text cpus,
//	        switch+1, nvlink generation, text fabric cluster, fabric clique
//	nics    count, then each: text name, bus, speed in Mbit/s, switch+1, rdma
//	flags   1 = nvswitch
//	kinds   count, then each distinct link: kind code, link count, bandwidth
//	links   for each i, each j < i: index into kinds
//	paths   for each gpu, each nic: kind code
//
// An id is a text prefix p, and 16 raw bytes if the UUID is p followed by the
// canonical lower-case form (told by a 1 before the bytes; 0: p is all of it).
// A bus is 0 for none, else (domain<<16 | bus<<8 | device<<3 | function) + 1.
// A bandwidth is the float64's bits in reversed byte order, since the low
// bytes of round numbers are zero.

const payloadNVSwitch = 1

var uuidForm = regexp.MustCompile(`^(.*)([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$`)

// payloadWriter collects the table of texts while it writes the rest.
type payloadWriter struct {
	buf   []byte
	texts []string
	index map[string]uint64
}

func (w *payloadWriter) num(n uint64) { w.buf = binary.AppendUvarint(w.buf, n) }

func (w *payloadWriter) text(s string) {
	if s == "" {
		w.num(0)
		return
	}
	n, ok := w.index[s]
	if !ok {
		w.texts = append(w.texts, s)
		n = uint64(len(w.texts))
		w.index[s] = n
	}
	w.num(n)
}

func (w *payloadWriter) id(s string) {
	f := uuidForm.FindStringSubmatch(s)
	if f == nil {
		w.text(s)
		w.num(0)
		return
	}
	raw, _ := hex.DecodeString(strings.ReplaceAll(f[2], "-", "")) // the form allows nothing else
	w.text(f[1])
	w.num(1)
	w.buf = append(w.buf, raw...)
}

func (w *payloadWriter) bus(s string) {
	if s == "" {
		w.num(0)
		return
	}
	w.num(packBusID(s) + 1)
}

func (w *payloadWriter) float(f float64) { w.num(bits.ReverseBytes64(math.Float64bits(f))) }

// encodePayload writes a valid matrix.
func encodePayload(m Matrix) []byte {
	w := &payloadWriter{index: map[string]uint64{}}
	w.num(uint64(len(m.GPUs)))
	for _, g := range m.GPUs {
		w.id(g.UUID)
		w.bus(g.BusID)
		w.text(g.Model)
		w.text(FormatList(g.NUMA))
		w.text(g.CPUs)
		w.num(uint64(g.Switch + 1))
		w.num(uint64(g.NVLinkGeneration))
		w.text(g.Fabric.ClusterUUID)
		w.num(uint64(g.Fabric.CliqueID))
	}
	w.num(uint64(len(m.NICs)))
	for _, n := range m.NICs {
		w.text(n.Name)
		w.bus(n.BusID)
		w.num(uint64(n.SpeedMbps))
		w.num(uint64(n.Switch + 1))
		w.num(flag(n.RDMA, 1))
	}
	w.num(flag(m.NVSwitch, payloadNVSwitch))
	w.links(m.Links)
	for _, row := range m.NICPaths {
		for _, k := range row {
			w.num(kindCode[k])
		}
	}
	head := &payloadWriter{}
	head.num(uint64(len(w.texts)))
	for _, s := range w.texts {
		head.num(uint64(len(s)))
		head.buf = append(head.buf, s...)
	}
	return append(head.buf, w.buf...)
}

func flag(set bool, bit uint64) uint64 {
	if set {
		return bit
	}
	return 0
}

func (w *payloadWriter) links(rows [][]Link) {
	var kinds []Link
	index := map[Link]int{}
	for i, row := range rows {
		for _, l := range row[:i] {
			if _, ok := index[l]; !ok {
				index[l] = len(kinds)
				kinds = append(kinds, l)
			}
		}
	}
	w.num(uint64(len(kinds)))
	for _, l := range kinds {
		w.num(kindCode[l.Kind])
		w.num(uint64(l.Count))
		w.float(l.GBs)
	}
	for i, row := range rows {
		for _, l := range row[:i] {
			w.num(uint64(index[l]))
		}
	}
}

// payloadReader reads until its first fault, which it keeps; after that every
// read is zero.
type payloadReader struct {
	buf   []byte
	texts []string
	err   error
}

func (r *payloadReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// num reads a number that must not exceed limit.
func (r *payloadReader) num(what string, limit uint64) uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.buf)
	if n <= 0 {
		r.fail("%s is cut off", what)
		return 0
	}
	r.buf = r.buf[n:]
	if v > limit {
		r.fail("%s is %d, at most %d is allowed", what, v, limit)
		return 0
	}
	return v
}

// count reads the number of items that follow, each of at least size bytes, so
// that nothing is allocated for items that are not there.
func (r *payloadReader) count(what string, limit, size int) int {
	n := int(r.num(what, uint64(limit)))
	if n*size > len(r.buf) {
		r.fail("%d %s do not fit in the %d bytes left", n, what, len(r.buf))
		return 0
	}
	return n
}

func (r *payloadReader) bytes(what string, n int) []byte {
	if r.err != nil || n > len(r.buf) {
		r.fail("%s is cut off", what)
		return nil
	}
	out := r.buf[:n]
	r.buf = r.buf[n:]
	return out
}

func (r *payloadReader) text(what string) string {
	n := r.num(what, uint64(len(r.texts)))
	if n == 0 || r.err != nil {
		return ""
	}
	return r.texts[n-1]
}

func (r *payloadReader) id() string {
	prefix := r.text("UUID")
	if r.num("UUID form", 1) == 0 {
		return prefix
	}
	raw := r.bytes("UUID", 16)
	if raw == nil {
		return ""
	}
	h := hex.EncodeToString(raw)
	return prefix + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func (r *payloadReader) bus() string {
	n := r.num("bus ID", 1<<48)
	if n == 0 {
		return ""
	}
	return formatBusID(n - 1)
}

func (r *payloadReader) float(what string) float64 {
	return math.Float64frombits(bits.ReverseBytes64(r.num(what, math.MaxUint64)))
}

var kindOfCode = func() []Kind {
	kinds := make([]Kind, len(kindCode))
	for k, code := range kindCode {
		kinds[code] = k
	}
	return kinds
}()

func (r *payloadReader) kind(what string) Kind {
	return kindOfCode[r.num(what, uint64(len(kindOfCode)-1))]
}

// decodePayload is the inverse of encodePayload. The matrix that it returns is
// still to be validated.
func decodePayload(payload []byte) (Matrix, error) {
	r := &payloadReader{buf: payload}
	r.texts = make([]string, r.count("texts", len(payload), 1))
	for i := range r.texts {
		r.texts[i] = string(r.bytes("text", int(r.num("text length", uint64(len(r.buf))))))
	}
	gpus := r.gpus()
	nics := r.nics()
	if r.err != nil {
		return Matrix{}, r.err
	}
	m := Empty(len(gpus), len(nics))
	copy(m.GPUs, gpus)
	copy(m.NICs, nics)
	m.NVSwitch = r.num("flags", payloadNVSwitch) == payloadNVSwitch
	r.links(&m)
	for i := range m.NICPaths {
		for j := range m.NICPaths[i] {
			m.NICPaths[i][j] = r.kind("NIC path")
		}
	}
	if len(r.buf) > 0 {
		r.fail("%d bytes too many", len(r.buf))
	}
	return m, r.err
}

func (r *payloadReader) gpus() []GPU {
	gpus := make([]GPU, r.count("GPUs", MaxGPUs, 10))
	for i := range gpus {
		g := &gpus[i]
		g.UUID = r.id()
		g.BusID = r.bus()
		g.Model = r.text("model")
		numa, err := ParseList(r.text("NUMA nodes"))
		if err != nil {
			r.fail("%w", err)
		}
		g.NUMA = numa
		g.CPUs = r.text("CPU affinity")
		g.Switch = int(r.num("switch group", MaxGPUs)) - 1
		g.NVLinkGeneration = int(r.num("NVLink generation", 255))
		g.Fabric.ClusterUUID = r.text("fabric cluster")
		g.Fabric.CliqueID = uint32(r.num("fabric clique", math.MaxUint32))
	}
	return gpus
}

func (r *payloadReader) nics() []NIC {
	nics := make([]NIC, r.count("NICs", MaxNICs, 5))
	for i := range nics {
		n := &nics[i]
		n.Name = r.text("NIC name")
		n.BusID = r.bus()
		n.SpeedMbps = int(r.num("NIC speed", math.MaxInt32))
		n.Switch = int(r.num("switch group", MaxGPUs)) - 1
		n.RDMA = r.num("NIC flags", 1) == 1
	}
	return nics
}

func (r *payloadReader) links(m *Matrix) {
	pairs := len(m.GPUs) * (len(m.GPUs) - 1) / 2
	kinds := make([]Link, r.count("kinds of links", pairs, 3))
	for i := range kinds {
		kinds[i] = Link{Kind: r.kind("link kind"), Count: int(r.num("link count", maxLinkCount)), GBs: r.float("bandwidth")}
	}
	for i := range m.Links {
		for j := range i {
			if len(kinds) == 0 {
				r.fail("there are links but no kinds of links")
				return
			}
			m.SetLink(i, j, kinds[r.num("link", uint64(len(kinds)-1))])
		}
	}
}
