# MPI: a launcher without GPUs and workers with two each, near to one another.
# mpirun fails when a worker is missing, so all of them are one gang.

variable "workers" {
  type    = number
  default = 4
}

variable "steps" {
  type    = number
  default = 30
}

variable "launcher" {
  type    = string
  default = <<-EOT
    # mpirun -np "$WORKERS" --hostfile local/hosts ./solver
    echo "launching $WORKERS workers"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1
      step=$((step + 1))
    done
  EOT
}

variable "worker" {
  type    = string
  default = <<-EOT
    # exec sshd -D -p "$NOMAD_PORT_ssh"
    echo "worker listens on $NOMAD_PORT_ssh with GPUs $CUDA_VISIBLE_DEVICES"
    step=0
    while [ "$step" -lt "$STEPS" ]; do
      sleep 1
      step=$((step + 1))
    done
  EOT
}

job "mpi" {
  type = "batch"

  meta {
    caravan_gang     = "job"
    caravan_topology = "prefer:node"
  }

  group "launcher" {
    task "mpirun" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", var.launcher]
      }
      env {
        WORKERS = var.workers
        STEPS   = var.steps
      }
      resources {
        cpu    = 100
        memory = 64
      }
    }
  }

  group "worker" {
    count = var.workers

    network {
      port "ssh" {}
    }

    restart {
      attempts = 0
      mode     = "fail"
    }

    task "worker" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", var.worker]
      }
      env {
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
