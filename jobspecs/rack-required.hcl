# A gang that is too slow across racks: both nodes must be in one rack, and
# the job waits until one rack has them.

variable "steps" {
  type    = number
  default = 60
}

variable "trainer" {
  type    = string
  default = <<-EOT
    echo "member $NOMAD_ALLOC_INDEX on $NOMAD_META_caravan_topology"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1
      step=$((step + 1))
    done
  EOT
}

job "rack-required" {
  type = "batch"

  meta {
    caravan_gang     = "job"
    caravan_topology = "require:rack"
  }

  group "trainer" {
    count = 2

    restart {
      attempts = 0
      mode     = "fail"
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }

    task "train" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", var.trainer]
      }
      env {
        STEPS = var.steps
      }
      resources {
        cpu    = 200
        memory = 128
        device "nvidia/gpu" {
          count = 8
        }
      }
    }
  }
}
