# What people and CI need who run jobs through the gateway, in a namespace of
# theirs. Nomad checks it with the caller's own token; the gateway adds nothing.
namespace "default" {
  capabilities = [
    "list-jobs",       # nomad job status
    "read-job",        # caravan queue, explain, plan; nomad job status JOB
    "submit-job",      # run (HCL is read by Nomad), plan, stop, revert, scale
    "alloc-lifecycle", # nomad alloc stop, restart, signal
    "read-logs",       # nomad alloc logs
  ]
}

# caravan topology: where the free GPUs are.
node {
  policy = "read"
}
