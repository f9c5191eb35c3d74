# A gang of any task driver: a prestart task waits for all members, and leaves
# ranks and addresses in a file that the trainer reads. A second task beside the
# trainer reports its progress, and ends the member when the gang has failed.
# The nodes need the caravan binary.

variable "members" {
  type    = number
  default = 2
}

variable "caravan" {
  type        = string
  description = "The caravan binary on the nodes"
  default     = "caravan"
}

variable "planners" {
  type        = string
  description = "The planners' addresses, with commas"
  default     = "http://127.0.0.1:4656"
}

variable "steps" {
  type    = number
  default = 60
}

variable "trainer" {
  type    = string
  default = <<-EOT
    set -a; . "$NOMAD_ALLOC_DIR/caravan/env"; set +a
    # exec torchrun train.py
    echo "node $NODE_RANK of $NNODES meets the others at $MASTER_ADDR:$MASTER_PORT"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1
      step=$((step + 1))
    done
  EOT
}

job "join-prestart" {
  type = "batch"

  meta {
    caravan_gang = "job"
  }

  group "trainer" {
    count = var.members

    network {
      port "rendezvous" {}
    }

    # A trainer that Nomad starts again alone would not go by the barrier.
    restart {
      attempts = 0
      mode     = "fail"
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }

    task "join" {
      driver = "raw_exec"
      lifecycle {
        hook    = "prestart"
        sidecar = false
      }
      # Says to the planner whose member this is.
      identity {
        name = "caravan"
        aud  = ["caravan"]
        file = true
        ttl  = "1h"
      }
      config {
        command = var.caravan
        args    = ["join", "--processes", "8", "--timeout", "10m"]
      }
      env {
        CARAVAN_PLANNERS = var.planners
      }
      resources {
        cpu    = 50
        memory = 64
      }
    }

    task "train" {
      driver = "raw_exec"
      leader = true

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
        device "nvidia/gpu" {
          count = 8
        }
      }
    }

    task "report" {
      driver = "raw_exec"
      lifecycle {
        hook    = "poststart"
        sidecar = true
      }
      identity {
        name = "caravan"
        aud  = ["caravan"]
        file = true
        ttl  = "1h"
      }
      config {
        command = var.caravan
        args    = ["join", "--sidecar"]
      }
      env {
        CARAVAN_PLANNERS = var.planners
      }
      resources {
        cpu    = 50
        memory = 64
      }
    }
  }
}
