package topology

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
)

// AttrTopology is the key of the device attribute that carries an encoded
// Matrix. It starts with "unique." because it differs on every node: Nomad
// leaves such attributes out of the node's computed class.
const AttrTopology = "unique.caravan_topology"

// attributePrefix names the format and its version. A later version gets
// another prefix, so that an older reader refuses it by name.
const attributePrefix = "ct1."

// Bounds on what Decode takes in. The largest valid Matrix is far below them.
const (
	maxAttributeBytes = 256 << 10
	maxPayloadBytes   = 512 << 10
)

// ErrAttribute is wrapped by every error of Decode.
var ErrAttribute = errors.New("unreadable topology attribute")

// Encode packs the matrix into a string for AttrTopology, about 400 bytes for
// eight GPUs:
//
//	"ct1." base64url( crc32(payload), 4 bytes little-endian · deflate(payload) )
//
// The payload is described at payload.go. Every GPU needs a UUID, since it is
// by UUID that Nomad names devices.
func Encode(m Matrix) (string, error) {
	if err := m.Validate(); err != nil {
		return "", err
	}
	for i, g := range m.GPUs {
		if g.UUID == "" {
			return "", fmt.Errorf("%w: GPU %d has no UUID", ErrInvalid, i)
		}
	}
	payload := encodePayload(m)
	if len(payload) > maxPayloadBytes {
		return "", fmt.Errorf("%w: %d bytes encoded, at most %d are allowed", ErrInvalid, len(payload), maxPayloadBytes)
	}
	packed, err := pack(attributePrefix, payload)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return packed, nil
}

// Decode unpacks a string that Encode made. Anything else, such as a
// truncated string, is an error that wraps ErrAttribute; the memory used is
// bounded whatever the string says.
func Decode(s string) (Matrix, error) {
	payload, err := unpack(attributePrefix, s)
	if err != nil {
		return Matrix{}, fmt.Errorf("%w: %w", ErrAttribute, err)
	}
	m, err := decodePayload(payload)
	if err == nil {
		err = m.Validate()
	}
	if err != nil {
		return Matrix{}, fmt.Errorf("%w: %w", ErrAttribute, err)
	}
	return m, nil
}

// pack compresses a payload and makes it fit for an attribute.
func pack(prefix string, payload []byte) (string, error) {
	var b bytes.Buffer
	b.Write(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(payload)))
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err == nil {
		_, err = w.Write(payload)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return "", fmt.Errorf("compress: %w", err)
	}
	s := prefix + base64.RawURLEncoding.EncodeToString(b.Bytes())
	if len(s) > maxAttributeBytes {
		return "", fmt.Errorf("%d characters encoded, at most %d are allowed", len(s), maxAttributeBytes)
	}
	return s, nil
}

// unpack is the inverse of pack, within bounds.
func unpack(prefix, s string) ([]byte, error) {
	if len(s) > maxAttributeBytes {
		return nil, fmt.Errorf("%d characters long, at most %d are allowed", len(s), maxAttributeBytes)
	}
	body, ok := strings.CutPrefix(s, prefix)
	if !ok {
		version, _, dotted := strings.Cut(s, ".")
		if dotted && len(version) < 8 {
			return nil, fmt.Errorf("format %q: this version reads %q", version, strings.TrimSuffix(prefix, "."))
		}
		return nil, fmt.Errorf("it does not start with %q", prefix)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil {
		return nil, err
	}
	if len(raw) < 4 {
		return nil, fmt.Errorf("truncated: %d bytes", len(raw))
	}
	compressed := bytes.NewReader(raw[4:])
	payload, err := io.ReadAll(io.LimitReader(flate.NewReader(compressed), maxPayloadBytes+1))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("truncated")
	case err != nil:
		return nil, fmt.Errorf("decompress: %w", err)
	case len(payload) > maxPayloadBytes:
		return nil, fmt.Errorf("more than %d bytes when decompressed", maxPayloadBytes)
	case compressed.Len() > 0:
		return nil, fmt.Errorf("%d bytes too long", compressed.Len())
	case crc32.ChecksumIEEE(payload) != binary.LittleEndian.Uint32(raw):
		return nil, errors.New("checksum mismatch")
	}
	return payload, nil
}
