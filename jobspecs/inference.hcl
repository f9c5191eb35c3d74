# Inference replicas: a service whose members are placed one by one, as GPUs
# become free, and spread over the racks.

variable "replicas" {
  type    = number
  default = 3
}

variable "server" {
  type    = string
  default = <<-EOT
    trap 'exit 0' INT TERM
    echo "serving on port $NOMAD_PORT_http with GPUs $CUDA_VISIBLE_DEVICES"
    while :; do
      sleep 1 & wait $!
    done
  EOT
}

job "inference" {
  type     = "service"
  priority = 70

  meta {
    caravan_gang = "none"
  }

  spread {
    attribute = "${meta.caravan_rack}"
  }

  update {
    max_parallel     = 1
    health_check     = "task_states"
    min_healthy_time = "1s"
  }

  group "replica" {
    count          = var.replicas
    shutdown_delay = "1s"

    network {
      port "http" {}
    }

    service {
      name     = "inference"
      provider = "nomad"
      port     = "http"
    }

    task "serve" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", var.server]
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
