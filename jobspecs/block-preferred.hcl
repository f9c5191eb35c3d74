# Pipeline stages of four GPUs each that like to be in one block of racks and
# run without that too. Older GPU models will not do.

variable "steps" {
  type    = number
  default = 60
}

variable "gpu_model" {
  type        = string
  description = "Regular expression for the GPU model"
  default     = "[ABH][0-9]+"
}

variable "trainer" {
  type    = string
  default = <<-EOT
    echo "stage $NOMAD_ALLOC_INDEX on GPUs $CUDA_VISIBLE_DEVICES"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1
      step=$((step + 1))
    done
  EOT
}

job "block-preferred" {
  type = "batch"

  meta {
    caravan_gang     = "job"
    caravan_topology = "prefer:block"
  }

  group "stage" {
    count = 3

    restart {
      attempts = 0
      mode     = "fail"
    }

    task "stage" {
      driver = "raw_exec"

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
          count = 4
          constraint {
            attribute = "${device.model}"
            regexp    = var.gpu_model
          }
        }
      }
    }
  }
}
