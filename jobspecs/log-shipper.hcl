# A member of several tasks: data is fetched first, a shipper sends the
# trainer's output away beside it, and only the trainer has GPUs.

variable "steps" {
  type    = number
  default = 60
}

variable "fetch" {
  type    = string
  default = "echo dataset > \"$NOMAD_ALLOC_DIR/data/dataset\""
}

variable "trainer" {
  type    = string
  default = <<-EOT
    echo "training on GPUs $CUDA_VISIBLE_DEVICES"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1
      step=$((step + 1))
      echo "loss $step"
    done
  EOT
}

variable "shipper" {
  type    = string
  default = <<-EOT
    trap 'exit 0' INT TERM
    while :; do
      cat "$NOMAD_ALLOC_DIR"/logs/train.stdout.* 2>/dev/null | wc -l
      sleep 2 & wait $!
    done
  EOT
}

job "log-shipper" {
  type = "batch"

  meta {
    caravan_gang = "job"
  }

  group "member" {
    count = 2

    restart {
      attempts = 0
      mode     = "fail"
    }

    task "fetch" {
      driver = "raw_exec"
      lifecycle {
        hook    = "prestart"
        sidecar = false
      }
      config {
        command = "/bin/sh"
        args    = ["-c", var.fetch]
      }
      resources {
        cpu    = 50
        memory = 32
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
        cpu    = 100
        memory = 64
        device "nvidia/gpu" {
          count = 4
        }
      }
    }

    task "ship-logs" {
      driver = "raw_exec"
      lifecycle {
        hook    = "poststart"
        sidecar = true
      }
      config {
        command = "/bin/sh"
        args    = ["-c", var.shipper]
      }
      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
