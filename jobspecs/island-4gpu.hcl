# Tensor parallelism over four GPUs that are all joined by NVLink. The device
# constraint keeps the job off models without NVLink; the topology setting
# makes the four GPUs one island's.

variable "steps" {
  type    = number
  default = 60
}

variable "command" {
  type    = string
  default = <<-EOT
    echo "tensor parallel over GPUs $CUDA_VISIBLE_DEVICES"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1
      step=$((step + 1))
    done
  EOT
}

job "island-4gpu" {
  type = "batch"

  meta {
    caravan_topology = "require:island"
  }

  group "tensor-parallel" {
    task "serve" {
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
          count = 4
          constraint {
            attribute = "${device.attr.nvlink_island_size}"
            operator  = ">="
            value     = "4"
          }
        }
      }
    }
  }
}
