# One GPU for one task: a fine-tuning run, an evaluation, a test.

variable "steps" {
  type    = number
  default = 60
}

variable "command" {
  type        = string
  description = "What to run; the default stands in for it"
  default     = <<-EOT
    echo "fine-tuning on GPU $CUDA_VISIBLE_DEVICES"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1
      step=$((step + 1))
    done
  EOT
}

job "single-gpu" {
  type = "batch"

  group "tune" {
    task "tune" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", var.command]
      }
      env {
        STEPS = var.steps
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
