package state

import (
	"cmp"

	"github.com/hashicorp/nomad/api"
)

// Namespaces returns all namespaces by name.
func (v *View) Namespaces() []*api.Namespace {
	return sorted(v.d.namespaces, func(a, b *api.Namespace) int { return cmp.Compare(a.Name, b.Name) })
}

// Namespace returns a namespace, or nil.
func (v *View) Namespace(name string) *api.Namespace { return v.d.namespaces[name] }

// PutNamespace stores a namespace that the caller gives up.
func (tx *Tx) PutNamespace(n *api.Namespace) {
	n.CreateIndex, n.ModifyIndex = tx.Index, tx.Index
	if old := tx.d.namespaces[n.Name]; old != nil {
		n.CreateIndex = old.CreateIndex
	}
	tx.d.namespaces[n.Name] = n
	tx.touch(Namespaces)
}

// DeleteNamespace forgets a namespace.
func (tx *Tx) DeleteNamespace(name string) {
	delete(tx.d.namespaces, name)
	tx.touch(Namespaces)
}

// Pools returns all node pools by name.
func (v *View) Pools() []*api.NodePool {
	return sorted(v.d.pools, func(a, b *api.NodePool) int { return cmp.Compare(a.Name, b.Name) })
}

// Pool returns a node pool, or nil.
func (v *View) Pool(name string) *api.NodePool { return v.d.pools[name] }

// PutPool stores a node pool that the caller gives up.
func (tx *Tx) PutPool(p *api.NodePool) {
	p.CreateIndex, p.ModifyIndex = tx.Index, tx.Index
	if old := tx.d.pools[p.Name]; old != nil {
		p.CreateIndex = old.CreateIndex
	}
	tx.d.pools[p.Name] = p
	tx.touch(Pools)
}

// DeletePool forgets a node pool.
func (tx *Tx) DeletePool(name string) {
	delete(tx.d.pools, name)
	tx.touch(Pools)
}
