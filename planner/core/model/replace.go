package model

import "time"

// Replacement is about gangs that were stopped because some of their members lost
// their nodes or GPUs. The others are to have their places again.
type Replacement struct {
	At time.Time `json:"at"`
	// Members are the placements that the gangs had, and Failed those of them whose
	// places are lost. Of an elastic gang that runs on without some, Failed is all
	// there is.
	Members []Member      `json:"members,omitempty"`
	Failed  []FailedPlace `json:"failed,omitempty"`
}

// FailedPlace is a member's place that is lost.
type FailedPlace struct {
	Group string `json:"group"`
	Index int    `json:"index"`
	Node  string `json:"node"`
	// Why goes on from the node's name: "is lost: Nomad has no contact with it".
	Why string `json:"why,omitempty"`
}
