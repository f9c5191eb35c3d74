# The Nomad Autoscaler with Caravan's plugins: nomad-autoscaler agent -config agent.hcl
# Its token needs what docs/autoscaler.md says.

plugin_dir = "/opt/nomad-autoscaler/plugins"

nomad {
  address = "http://127.0.0.1:4646"
}

policy {
  dir = "/etc/nomad-autoscaler/policies"

  # Caravan looks at everything in each of its cycles, and a deadline does not wait.
  default_evaluation_interval = "30s"
  default_cooldown            = "1m"
}

# What the planner knows, as metrics.
apm "caravan" {
  driver = "caravan-apm"
  config = {
    planner_address = "http://127.0.0.1:4656"
  }
}

# Buys and gives back what the planner decides.
strategy "caravan" {
  driver = "caravan-strategy"
  config = {
    planner_address = "http://127.0.0.1:4656"
  }
}

# Makes the nodes that the planner names, by Terraform.
target "caravan-terraform" {
  driver = "caravan-terraform"
  config = {
    pools_file      = "/etc/caravan/pools.hcl"
    planner_address = "http://127.0.0.1:4656"
  }
}

# The same without a planner: nodes are numbered, and as many as a strategy says.
target "terraform-count" {
  driver = "caravan-terraform"
  config = {
    pools_file = "/etc/caravan/pools.hcl"
  }
}
