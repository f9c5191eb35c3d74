// Package rendezvous turns a gang's membership into what its processes need to
// find each other: ranks, addresses, environment variables and host files. It
// is pure.
package rendezvous

// Membership is who belongs to a gang, in the order of ranks. The planner
// computes it once all members have joined; every member gets the same one.
type Membership struct {
	// Epoch names one common start of the whole gang; every time that all
	// members start anew it is another one. Generation counts the memberships of
	// an epoch from 1: it grows when members come or go while the others run on.
	Epoch      string `json:"epoch"`
	Generation int    `json:"generation"`

	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	// Gang is the task group where each group of the job is a gang by itself,
	// else "".
	Gang string `json:"gang,omitempty"`

	// Members are in the order of their node ranks, which follows the topology
	// tree: neighbours in the list are near each other.
	Members []Member `json:"members"`
	// MasterAddr and MasterPort are where rank 0 listens for the others.
	MasterAddr string `json:"master_addr"`
	MasterPort int    `json:"master_port"`
	// Min and Max are the elastic bounds of the number of members; both are the
	// number of members where the gang is not elastic.
	Min int `json:"min"`
	Max int `json:"max"`
}

// Member is one member of a gang: an allocation on a node.
type Member struct {
	// Group and Index name the member in its job.
	Group string `json:"group"`
	Index int    `json:"index"`
	Alloc string `json:"alloc"`
	// Node is the Nomad node's ID, NodeName its name.
	Node     string `json:"node"`
	NodeName string `json:"node_name"`
	// Address is the IP address that the other members reach it by.
	Address string `json:"address"`
	// GPUs are the UUIDs of its GPUs.
	GPUs []string `json:"gpus,omitempty"`
	// Processes is how many ranks the member has: its local world size, at
	// least 1.
	Processes int `json:"processes"`
}
