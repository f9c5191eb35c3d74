# Training with the caravan task driver: the members start at the same moment,
# with ranks and addresses in their environment, and a stop waits for a
# checkpoint. With -var code=DIR, the directory of train.py and caravan.py on the
# nodes, a real if small network is trained; otherwise a shell script stands in.

variable "members" {
  type    = number
  default = 2
}

variable "code" {
  type        = string
  description = "Where train.py and caravan.py are on the nodes"
  default     = ""
}

variable "checkpoints" {
  type        = string
  description = "Where checkpoints go; storage that all nodes see lets a moved gang go on from them"
  default     = "$${NOMAD_ALLOC_DIR}/data/checkpoints"
}

variable "steps" {
  type    = number
  default = 600
}

variable "trainer" {
  type    = string
  default = <<-EOT
    if [ -n "$CODE" ]; then
      exec python3 -u "$CODE/train.py" --dir "$CHECKPOINTS" --steps "$STEPS" --pause 0.1
    fi
    # A checkpoint is written under another name and renamed when it is complete.
    save() {
      mkdir -p "$CHECKPOINTS" && echo "$step" > "$CHECKPOINTS/.step-$step" &&
        mv "$CHECKPOINTS/.step-$step" "$CHECKPOINTS/step-$step" && echo "checkpoint at step $step"
    }
    step=0
    trap save USR1
    trap 'exit 0' INT TERM
    echo "rank $RANK of $WORLD_SIZE meets the others at $MASTER_ADDR:$MASTER_PORT"
    while [ "$step" -lt "$STEPS" ]; do
      sleep 0.1 & wait $!
      step=$((step + 1))
    done
    save
  EOT
}

job "train-driver" {
  type = "batch"

  meta {
    caravan_gang     = "job"
    caravan_topology = "prefer:rack"
  }

  group "trainer" {
    count = var.members

    network {
      port "rendezvous" {}
    }

    # A member that fails is started again, and the others come back to the
    # barrier with it; all go on from the newest checkpoint.
    restart {
      attempts = 3
      interval = "1h"
      delay    = "5s"
      mode     = "fail"
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }

    task "train" {
      driver       = "caravan"
      kill_timeout = "60s"

      config {
        command   = "/bin/sh"
        args      = ["-c", var.trainer]
        processes = 1
        checkpoint {
          signal = "SIGUSR1"
          grace  = "40s"
          paths  = [var.checkpoints]
        }
      }
      env {
        CODE        = var.code
        CHECKPOINTS = var.checkpoints
        STEPS       = var.steps
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
