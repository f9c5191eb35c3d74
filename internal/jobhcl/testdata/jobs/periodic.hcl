# Tasks without a group, and what only batch jobs have.
job "nightly" {
  type = "batch"

  periodic {
    crons            = ["0 2 * * *", "@weekly"]
    prohibit_overlap = true
    time_zone        = "Europe/Berlin"
    enabled          = true
  }
  parameterized {
    payload       = "optional"
    meta_required = ["dataset"]
    meta_optional = ["seed"]
  }
  multiregion {
    strategy {
      max_parallel = 1
      on_failure   = "fail_all"
    }
    region "west" {
      count       = 2
      datacenters = ["w1"]
      meta {
        x = "y"
      }
    }
  }

  vault {
    role = "default"
  }

  task "a" {
    driver = "raw_exec"
    env = {
      "DOTTED.NAME" = "${NOMAD_DC}"
    }
    config {
      command = "/bin/true"
    }
  }
  task "b" {
    driver = "raw_exec"
    config {
      command = "/bin/true"
    }
    resources {
      network {
        mbits = 10
        port "p" {
          static = 8000
        }
      }
    }
  }
  group "rest" {
    vault {
      policies = ["x"]
    }
    max_client_disconnect = "1h"
    task "c" {
      driver       = "raw_exec"
      kill_timeout = 5000000000
      config {
        command = "/bin/true"
      }
      schedule {
        cron {
          start    = "0 8 * * *"
          end      = "0 18 * * *"
          timezone = "UTC"
        }
      }
    }
  }
}
