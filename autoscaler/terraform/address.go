package terraform

import (
	"strings"

	tfjson "github.com/hashicorp/terraform-json"
)

// address is a resource's, taken apart.
type address struct {
	full string
	// base is the address without keys, and keys are those that were strings.
	base string
	keys []string
}

// parseAddress takes apart an address such as module.pool["a"].aws_instance.node["b"].
func parseAddress(full string) address {
	a := address{full: full}
	var base strings.Builder
	for rest := full; rest != ""; {
		at := strings.IndexByte(rest, '[')
		if at < 0 {
			base.WriteString(rest)
			break
		}
		base.WriteString(rest[:at])
		rest = rest[at+1:]
		if !strings.HasPrefix(rest, `"`) { // a number, as count makes
			if _, rest, _ = strings.Cut(rest, "]"); rest == "" {
				break
			}
			continue
		}
		var key string
		key, rest = unquote(rest[1:])
		a.keys = append(a.keys, key)
		rest = strings.TrimPrefix(rest, "]")
	}
	a.base = base.String()
	return a
}

// unquote reads a key up to its closing quote.
func unquote(s string) (key, rest string) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i < len(s) {
				b.WriteByte(s[i])
			}
		case '"':
			return b.String(), s[i+1:]
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), ""
}

// node is the name of the node that the resource is, or a part of.
func (a address) node(resources []string) (string, bool) {
	if len(a.keys) == 0 {
		return "", false
	}
	if len(resources) == 0 {
		parts := strings.Split(a.base, ".")
		if parts[len(parts)-1] == nodeResource || strings.Contains("."+a.base, ".module."+nodeResource+".") {
			return a.keys[len(a.keys)-1], true
		}
		return "", false
	}
	for _, r := range resources {
		if a.base == r {
			return a.keys[len(a.keys)-1], true
		}
		// Below a module that is a node for each of its instances.
		if strings.HasPrefix(r, "module.") && strings.HasPrefix(a.base, r+".") {
			return a.keys[len(a.keys)-1], true
		}
	}
	return "", false
}

// about says whether the resource has one of the names as a key.
func (a address) about(names map[string]bool) (string, bool) {
	for _, k := range a.keys {
		if names[k] {
			return k, true
		}
	}
	return "", false
}

// resourcesOf are all managed resources of a state.
func resourcesOf(m *tfjson.StateModule) []*tfjson.StateResource {
	if m == nil {
		return nil
	}
	var all []*tfjson.StateResource
	for _, r := range m.Resources {
		if r.Mode == tfjson.ManagedResourceMode {
			all = append(all, r)
		}
	}
	for _, child := range m.ChildModules {
		all = append(all, resourcesOf(child)...)
	}
	return all
}
