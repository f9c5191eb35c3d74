# Configuration of a GPU client, beside what the agent has already: put it into
# its configuration directory, for example as /etc/nomad.d/caravan.hcl, and restart
# the agent. Both binaries belong into plugin_dir.

plugin_dir = "/opt/nomad/plugins"

# The node's GPUs, their links and their health. It takes the place of
# nomad-device-nvidia.
plugin "nomad-device-caravan" {
  config {
    enabled            = true
    fingerprint_period = "1m"
  }
}

# Gangs that start together, checkpoints, and containers.
plugin "nomad-driver-caravan" {
  config {
    planner {
      # All planners; the first that answers is used.
      addresses = ["http://10.0.0.5:4656", "http://10.0.0.6:4656"]
      # ca_file = "/etc/caravan/ca.pem" # with https addresses
    }

    # The planner's replacement of a member that is cut off waits as long.
    fence_after = "60s"

    # In the order of preference; what is not installed is passed over.
    runtimes = ["podman", "docker", "apptainer"]

    # Tasks run as the agent's user unless they say another one. This forbids it:
    # denied_users = ["root"]
  }
}

client {
  enabled = true

  # Tasks may take longer to stop than Nomad's 30s: they write a checkpoint.
  max_kill_timeout = "10m"

  # Where the node is; leave out the levels that you do not have.
  meta {
    caravan_block = "b1"
    caravan_rack  = "r7"
  }
}
