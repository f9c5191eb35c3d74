# Two groups in one gang: trainers on whole nodes, and an evaluator that reads
# their checkpoints. Nothing starts until there is room for all of them.

variable "steps" {
  type    = number
  default = 60
}

variable "trainer" {
  type    = string
  default = <<-EOT
    echo "trainer $NOMAD_ALLOC_INDEX on GPUs $CUDA_VISIBLE_DEVICES"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1
      step=$((step + 1))
    done
  EOT
}

variable "evaluator" {
  type    = string
  default = <<-EOT
    echo "evaluating on GPUs $CUDA_VISIBLE_DEVICES"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1
      step=$((step + 1))
    done
  EOT
}

job "trainer-evaluator" {
  type = "batch"

  meta {
    caravan_gang = "job"
  }

  group "trainer" {
    count = 2

    restart {
      attempts = 0
      mode     = "fail"
    }

    task "train" {
      driver = "raw_exec"

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
  }

  group "evaluator" {
    restart {
      attempts = 2
      interval = "10m"
      delay    = "5s"
      mode     = "fail"
    }

    task "evaluate" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", var.evaluator]
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
  }
}
