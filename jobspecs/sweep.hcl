# A hyperparameter sweep: as many one-GPU trials as there are learning rates.
# They need not start together, so each takes the next GPU that is free.

variable "learning_rates" {
  type    = list(number)
  default = [0.1, 0.03, 0.01, 0.003, 0.001, 0.0003]
}

variable "steps" {
  type    = number
  default = 30
}

variable "trial" {
  type    = string
  default = <<-EOT
    set -- $LEARNING_RATES
    shift "$NOMAD_ALLOC_INDEX"
    echo "trial $NOMAD_ALLOC_INDEX: learning rate $1 on GPU $CUDA_VISIBLE_DEVICES"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1
      step=$((step + 1))
    done
  EOT
}

job "sweep" {
  type = "batch"

  meta {
    caravan_gang = "none"
  }

  group "trial" {
    count = length(var.learning_rates)

    task "trial" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", var.trial]
      }
      env {
        LEARNING_RATES = join(" ", var.learning_rates)
        STEPS          = var.steps
      }
      resources {
        cpu    = 100
        memory = 64
        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
