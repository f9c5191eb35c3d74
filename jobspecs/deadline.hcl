# A run that must be ready in time: its length is known, and so is when it has
# to have ended. It checkpoints, so that it may be interrupted.

variable "steps" {
  type    = number
  default = 60
}

variable "deadline" {
  type        = string
  description = "A time (RFC 3339), or a duration after the submission"
  default     = "8h"
  validation {
    condition     = strlen(var.deadline) > 0
    error_message = "a deadline like \"8h\" or \"2031-05-17T18:00:00Z\""
  }
}

variable "trainer" {
  type    = string
  default = <<-EOT
    trap 'echo "checkpoint at step $step"; exit 0' INT TERM
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1 & wait $!
      step=$((step + 1))
    done
  EOT
}

job "deadline" {
  type     = "batch"
  priority = 60

  meta {
    caravan_queue      = "research/forecast"
    caravan_duration   = "90m"
    caravan_deadline   = var.deadline
    caravan_preempt    = "checkpoint"
    caravan_checkpoint = "15m"
  }

  group "forecast" {
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
        cpu    = 100
        memory = 64
        device "nvidia/gpu" {
          count = 2
        }
      }
    }
  }
}
