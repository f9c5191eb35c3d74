package gangspec

import "github.com/hashicorp/nomad/api"

// CanonicalJSON is what Hash hashes.
func CanonicalJSON(job *api.Job) []byte { data, _ := canonicalJSON(job); return data }
