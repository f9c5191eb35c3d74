package record

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// The items of a record's Variables. The head has the record itself as JSON
// for people who look, and the rest (the job, its source, the placement)
// compressed, either here or in parts.
const (
	itemRecord = "record"
	itemBlob   = "blob"
	itemBlobID = "blob_id"
	itemParts  = "parts"
	itemPart   = "part"
)

const (
	// partSize bounds a part: Nomad takes 64 KiB per Variable, keys included.
	partSize = 60 << 10
	// inlineSize bounds what goes into the head itself, beside the record.
	inlineSize = 40 << 10
	// maxBlob bounds what a damaged or hostile record may unpack to.
	maxBlob = 64 << 20
	// maxParts bounds how many parts a head may name.
	maxParts = 512
)

// headPath is where a job's record is. Nomad's paths are short and of few
// characters, its job IDs are neither; so the path has what fits of the names,
// and a hash of all of them.
func headPath(namespace, job string) string {
	sum := sha256.Sum256([]byte(namespace + "\x00" + job))
	hash := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:15]))
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '-'
	}, namespace+"~"+job)
	return Root + "/" + name[:min(len(name), 40)] + "~" + hash
}

func partPath(head, blobID string, i int) string {
	return head + "/" + blobID + "-" + strconv.Itoa(i)
}

func isHead(path string) bool {
	rest, ok := strings.CutPrefix(path, Root+"/")
	return ok && !strings.Contains(rest, "/")
}

// blob is the large part of a record.
type blob struct {
	Original *api.Job           `json:"original,omitempty"`
	Source   *api.JobSubmission `json:"source,omitempty"`
	Members  []model.Member     `json:"members,omitempty"`
	// Before and BeforeSource are of the version that a rollout replaces.
	Before       *api.Job           `json:"before,omitempty"`
	BeforeSource *api.JobSubmission `json:"before_source,omitempty"`
	// Prior is of the record before.
	Prior *blob `json:"prior,omitempty"`
	// Canaries are the rollout's.
	Canaries []model.Member `json:"canaries,omitempty"`
	// Former are the replacement's.
	Former []model.Member `json:"former,omitempty"`
}

func blobOf(rec *Record) blob {
	out := blob{Original: rec.Original, Source: rec.Source, Members: rec.Members}
	if rec.Rollout != nil {
		out.Before, out.BeforeSource = rec.Rollout.Original, rec.Rollout.Source
		if c := rec.Rollout.Canary; c != nil {
			out.Canaries = c.Members
		}
	}
	if rec.Replace != nil {
		out.Former = rec.Replace.Members
	}
	if rec.Prior != nil {
		prior := blobOf(rec.Prior)
		out.Prior = &prior
	}
	return out
}

// fill puts the large part back into a record.
func (b *blob) fill(rec *Record) {
	rec.Original, rec.Source, rec.Members = b.Original, b.Source, b.Members
	if rec.Rollout != nil {
		rec.Rollout.Original, rec.Rollout.Source = b.Before, b.BeforeSource
		if rec.Rollout.Canary != nil {
			rec.Rollout.Canary.Members = b.Canaries
		}
	}
	if rec.Replace != nil {
		rec.Replace.Members = b.Former
	}
	if rec.Prior != nil && b.Prior != nil {
		b.Prior.fill(rec.Prior)
	}
}

// slim is a record without the placements, which are in the blob.
func slim(rec *Record) Record {
	out := *rec
	out.Members = nil
	if rec.Replace != nil {
		replace := *rec.Replace
		replace.Members, out.Replace = nil, &replace
	}
	return out
}

// encode writes a record's head and parts. Equal contents have equal names.
func encode(rec *Record) (items api.VariableItems, parts []string, blobID string, err error) {
	small := slim(rec)
	if rec.Prior != nil {
		prior := slim(rec.Prior)
		small.Prior = &prior
	}
	head, err := json.Marshal(small)
	if err != nil {
		return nil, nil, "", fmt.Errorf("encode record: %w", err)
	}
	raw, err := json.Marshal(blobOf(rec))
	if err != nil {
		return nil, nil, "", fmt.Errorf("encode record: %w", err)
	}
	sum := sha256.Sum256(raw)
	blobID = hex.EncodeToString(sum[:8])
	packed, err := pack(raw)
	if err != nil {
		return nil, nil, "", err
	}
	items = api.VariableItems{itemRecord: string(head), itemBlobID: blobID}
	if len(packed)+len(head) <= inlineSize {
		items[itemBlob] = packed
		return items, nil, blobID, nil
	}
	for part := range slices.Chunk([]byte(packed), partSize) {
		parts = append(parts, string(part))
	}
	if len(parts) > maxParts {
		return nil, nil, "", fmt.Errorf("encode record: the job is too large, %d bytes compressed", len(packed))
	}
	items[itemParts] = strconv.Itoa(len(parts))
	return items, parts, blobID, nil
}

func pack(raw []byte) (string, error) {
	var buf bytes.Buffer
	w, err := flate.NewWriter(&buf, flate.BestCompression)
	if err != nil {
		return "", fmt.Errorf("compress record: %w", err)
	}
	if _, err := w.Write(raw); err != nil {
		return "", fmt.Errorf("compress record: %w", err)
	}
	if err := w.Close(); err != nil {
		return "", fmt.Errorf("compress record: %w", err)
	}
	return base64.StdEncoding.EncodeToString(buf.Bytes()), nil
}

func unpack(packed string) ([]byte, error) {
	r := flate.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed)))
	raw, err := io.ReadAll(io.LimitReader(r, maxBlob+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	case len(raw) > maxBlob:
		return nil, fmt.Errorf("%w: it unpacks to more than %d bytes", ErrDamaged, maxBlob)
	}
	return raw, nil
}

// head is a head Variable, read.
type head struct {
	small  Record
	blobID string
	inline string
	parts  int
}

func parseHead(items api.VariableItems) (*head, error) {
	h := &head{blobID: items[itemBlobID], inline: items[itemBlob]}
	if err := json.Unmarshal([]byte(items[itemRecord]), &h.small); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if n := items[itemParts]; n != "" {
		parts, err := strconv.Atoi(n)
		if err != nil || parts < 1 || parts > maxParts {
			return nil, fmt.Errorf("%w: it has %q parts", ErrDamaged, n)
		}
		h.parts = parts
	}
	if h.blobID == "" || strings.ContainsFunc(h.blobID, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) }) {
		return nil, fmt.Errorf("%w: its content has the name %q", ErrDamaged, h.blobID)
	}
	return h, nil
}

// entry is a record as the Store remembers it, with how it is laid out.
type entry struct {
	rec    Record
	blobID string
	parts  int
}

// record returns a copy that the caller may change, except for what Original
// and Source point to.
func (e *entry) record() *Record {
	out := e.rec.clone()
	return &out
}

// clone copies what may be changed.
func (r *Record) clone() Record {
	out := *r
	out.Members = slices.Clone(r.Members)
	if out.Rollout != nil {
		rollout := *out.Rollout
		if rollout.Canary != nil {
			canary := *rollout.Canary
			canary.Members = slices.Clone(canary.Members)
			rollout.Canary = &canary
		}
		rollout.Marked = maps.Clone(rollout.Marked)
		out.Rollout = &rollout
	}
	if out.Replace != nil {
		replace := *out.Replace
		replace.Members = slices.Clone(replace.Members)
		out.Replace = &replace
	}
	if out.Prior != nil {
		prior := out.Prior.clone()
		out.Prior = &prior
	}
	return out
}

// entry joins the head with its blob.
func (h *head) entry(b blob, index uint64) *entry {
	e := &entry{rec: h.small, blobID: h.blobID, parts: h.parts}
	e.rec.ModifyIndex = index
	b.fill(&e.rec)
	return e
}

// decode reads a blob, and checks that it is the one that the head names.
func (h *head) decode(packed string) (blob, error) {
	raw, err := unpack(packed)
	if err != nil {
		return blob{}, err
	}
	sum := sha256.Sum256(raw)
	if hex.EncodeToString(sum[:8]) != h.blobID {
		return blob{}, fmt.Errorf("%w: its content is not what its head names", ErrDamaged)
	}
	var b blob
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&b); err != nil {
		return blob{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return b, nil
}
