# What an operator of Caravan needs. `caravan release --all` takes a management
# token besides.
namespace "*" {
  capabilities = [
    "list-jobs",  # nomad job status in every namespace
    "read-job",   # caravan status, queue, explain, doctor
    "submit-job", # caravan release JOB
  ]
}

# caravan topology, doctor; nomad node drain, eligibility.
node {
  policy = "write"
}

# caravan doctor; Nomad's own preemption on or off.
operator {
  policy = "write"
}
