# Data-parallel training on whole nodes: two members with eight GPUs each.
# Both are placed together or neither is.

variable "members" {
  type        = number
  description = "How many nodes to train on"
  default     = 2
}

variable "steps" {
  type        = number
  description = "How many steps the stand-in trains, one second each"
  default     = 120
}

variable "trainer" {
  type        = string
  description = "What each member runs; the default stands in for a trainer"
  default     = <<-EOT
    trap 'echo "checkpoint at step $step"; exit 0' INT TERM
    echo "member $NOMAD_ALLOC_INDEX has GPUs $CUDA_VISIBLE_DEVICES"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1 & wait $!
      step=$((step + 1))
    done
    echo "trained $step steps"
  EOT
}

job "train-gang" {
  type = "batch"

  meta {
    caravan_gang = "job"
  }

  group "trainer" {
    count = var.members

    # A member that fails takes the gang with it; Nomad must not bring back
    # one alone.
    restart {
      attempts = 0
      mode     = "fail"
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }

    task "train" {
      driver       = "raw_exec"
      kill_timeout = "20s"

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
