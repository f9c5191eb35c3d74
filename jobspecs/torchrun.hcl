# torchrun on several nodes. The members meet at an etcd, which hands out the
# ranks. Since Caravan starts them all at once, nobody waits there long.

variable "nodes" {
  type    = number
  default = 2
}

variable "rendezvous" {
  type        = string
  description = "HOST:PORT of an etcd"
  default     = "etcd.service.consul:2379"
}

variable "steps" {
  type    = number
  default = 60
}

variable "script" {
  type        = string
  description = "What each member runs; give it your torchrun command line"
  default     = <<-EOT
    # exec torchrun --nnodes "$NNODES" --nproc-per-node gpu \
    #   --rdzv-backend etcd-v2 --rdzv-endpoint "$RENDEZVOUS" --rdzv-id "$NOMAD_JOB_ID" \
    #   --local-addr "$NOMAD_IP_train" train.py
    echo "one of $NNODES meets the others at $RENDEZVOUS as $NOMAD_IP_train"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1
      step=$((step + 1))
    done
  EOT
}

job "torchrun" {
  type = "batch"

  meta {
    caravan_gang     = "job"
    caravan_topology = "prefer:rack"
  }

  group "node" {
    count = var.nodes

    network {
      port "train" {}
    }

    restart {
      attempts = 0
      mode     = "fail"
    }

    task "torchrun" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", var.script]
      }
      env {
        NNODES     = var.nodes
        RENDEZVOUS = var.rendezvous
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
