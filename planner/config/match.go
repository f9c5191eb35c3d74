package config

import (
	"path"
	"slices"
)

// Exempt says why a job in that namespace and node pool is left to Nomad; ""
// when it is not.
func (m Managed) Exempt(namespace, pool string) string {
	switch {
	case !matchAny(m.Namespaces, namespace):
		return "namespace " + namespace + " is not in managed.namespaces"
	case matchAny(m.ExemptNamespaces, namespace):
		return "namespace " + namespace + " is in managed.exempt_namespaces"
	case matchAny(m.ExemptNodePools, pool):
		return "node pool " + pool + " is in managed.exempt_node_pools"
	}
	return ""
}

// matchAny reports whether a pattern matches s. Patterns were validated, so
// none is malformed.
func matchAny(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, s)
		return err == nil && ok
	})
}
