# A notebook server with one GPU: a service that runs until it is stopped.

variable "user" {
  type    = string
  default = "ada"
}

variable "server" {
  type        = string
  description = "What to run; the default stands in for a notebook server"
  default     = <<-EOT
    trap 'exit 0' INT TERM
    echo "notebook on port $NOMAD_PORT_http with GPU $CUDA_VISIBLE_DEVICES"
    while :; do
      sleep 1 & wait $!
    done
  EOT
}

job "notebook" {
  id   = "notebook-${var.user}"
  type = "service"

  meta {
    caravan_queue = "interactive/${var.user}"
    # Nobody likes to lose a session.
    caravan_preempt = "never"
  }

  group "notebook" {
    shutdown_delay = "1s"

    network {
      port "http" {}
    }

    service {
      name     = "notebook-${var.user}"
      provider = "nomad"
      port     = "http"
      tags     = ["interactive"]
    }

    # The stand-in answers no health check.
    update {
      health_check     = "task_states"
      min_healthy_time = "1s"
    }

    task "server" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", var.server]
      }
      env {
        PORT = "${NOMAD_PORT_http}"
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
