package record

import "github.com/hashicorp/nomad/api"

// Parse reads a head Variable that has everything in it.
func Parse(items api.VariableItems) (*Record, error) {
	h, err := parseHead(items)
	if err != nil {
		return nil, err
	}
	content, err := h.decode(h.inline)
	if err != nil {
		return nil, err
	}
	return h.entry(content, 1).record(), nil
}
