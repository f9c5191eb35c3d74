# Parameter servers and data loaders need no GPU, but the workers are useless
# without them: one gang of three groups. `dynamic` makes the groups without
# GPUs from one list.

variable "steps" {
  type    = number
  default = 60
}

variable "cpu_groups" {
  type        = map(number)
  description = "Groups without GPUs and how many members each has"
  default = {
    loader = 2
    server = 1
  }
}

variable "script" {
  type    = string
  default = <<-EOT
    echo "$ROLE $NOMAD_ALLOC_INDEX with GPUs [$CUDA_VISIBLE_DEVICES]"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1
      step=$((step + 1))
    done
  EOT
}

job "parameter-server" {
  type = "batch"

  meta {
    caravan_gang     = "job"
    caravan_topology = "prefer:rack"
  }

  dynamic "group" {
    for_each = var.cpu_groups
    labels   = [group.key]
    content {
      count = group.value

      task "run" {
        driver = "raw_exec"
        config {
          command = "/bin/sh"
          args    = ["-c", var.script]
        }
        env {
          ROLE  = group.key
          STEPS = var.steps
        }
        resources {
          cpu    = 100
          memory = 64
        }
      }
    }
  }

  group "worker" {
    count = 4

    restart {
      attempts = 0
      mode     = "fail"
    }

    task "run" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", var.script]
      }
      env {
        ROLE  = "worker"
        STEPS = var.steps
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
