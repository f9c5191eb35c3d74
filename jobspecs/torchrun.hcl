# torchrun on several nodes. The member that is first in Nomad's service
# catalogue is the rendezvous; Caravan starts all members at once, so nobody
# waits there long.

variable "nodes" {
  type    = number
  default = 2
}

variable "steps" {
  type    = number
  default = 30
}

variable "script" {
  type        = string
  description = "What each member runs once it knows the rendezvous; give it your torchrun command line"
  default     = <<-EOT
    # torchrun --nnodes "$NNODES" --nproc-per-node 8 --node-rank "$NOMAD_ALLOC_INDEX" \
    #   --rdzv-backend c10d --rdzv-endpoint "$RENDEZVOUS" --rdzv-id "$NOMAD_JOB_ID" train.py
    echo "node $NOMAD_ALLOC_INDEX of $NNODES meets at $RENDEZVOUS"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1
      step=$((step + 1))
    done
  EOT
}

locals {
  # The file appears when the first member is registered.
  find_rendezvous = <<-EOT
    tries=0
    while [ ! -s local/rendezvous ] && [ "$tries" -lt 20 ]; do
      sleep 1
      tries=$((tries + 1))
    done
    RENDEZVOUS="$(cat local/rendezvous 2>/dev/null || echo "$NOMAD_ADDR_rendezvous")"
    export RENDEZVOUS
  EOT
}

job "torchrun" {
  type = "batch"

  meta {
    caravan_gang     = "job"
    caravan_topology = "prefer:rack"
  }

  group "node" {
    count          = var.nodes
    shutdown_delay = "1s"

    network {
      port "rendezvous" {}
    }

    service {
      name     = "torchrun-rendezvous"
      provider = "nomad"
      port     = "rendezvous"
    }

    restart {
      attempts = 0
      mode     = "fail"
    }

    task "torchrun" {
      driver = "raw_exec"

      template {
        data        = <<-EOT
          {{- range $i, $s := nomadService "torchrun-rendezvous" }}
          {{- if eq $i 0 }}{{ $s.Address }}:{{ $s.Port }}{{ end }}
          {{- end -}}
        EOT
        destination = "local/rendezvous"
        change_mode = "noop"
      }
      config {
        command = "/bin/sh"
        args    = ["-c", join("\n", [local.find_rendezvous, var.script])]
      }
      env {
        NNODES     = var.nodes
        STEPS      = var.steps
        NCCL_DEBUG = "WARN"
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
