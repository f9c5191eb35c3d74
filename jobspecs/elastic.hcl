# A gang that may run with one to three nodes and asks for two.

variable "steps" {
  type    = number
  default = 60
}

variable "trainer" {
  type    = string
  default = <<-EOT
    trap 'echo "checkpoint at step $step"; exit 0' INT TERM
    echo "member $NOMAD_ALLOC_INDEX on GPUs $CUDA_VISIBLE_DEVICES"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1 & wait $!
      step=$((step + 1))
    done
  EOT
}

job "elastic" {
  type = "batch"

  meta {
    caravan_gang       = "job"
    caravan_checkpoint = "10m"
  }

  group "trainer" {
    count = 2

    meta {
      caravan_min = "1"
      caravan_max = "3"
    }

    restart {
      attempts = 0
      mode     = "fail"
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
        # Whole nodes: only those can change their number without a restart.
        device "nvidia/gpu" {
          count = 8
        }
      }
    }
  }
}
