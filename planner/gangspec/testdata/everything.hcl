# A job that uses most of what a job with GPUs may use, so that its hash is
# compared before and after Nomad has completed it.
job "everything" {
  datacenters = ["dc1"]
  type        = "service"
  meta {
    caravan_gang = "job"
  }
  update {
    max_parallel = 2
    canary       = 1
    stagger      = "10s"
  }
  migrate {
    max_parallel = 2
  }
  reschedule {
    delay          = "45s"
    delay_function = "constant"
    unlimited      = true
  }
  ui {
    description = "Trains."
    link {
      label = "runbook"
      url   = "https://example.com"
    }
  }
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  constraint {
    distinct_hosts = true
  }
  group "workers" {
    count = 2
    network {
      mode = "host"
      port "http" {}
      port "nccl" {
        static = 29500
        to     = 29500
      }
      dns {
        servers = ["10.0.0.1"]
      }
    }
    service {
      name     = "train-${TASKGROUP}"
      port     = "http"
      provider = "nomad"
      check {
        type     = "http"
        path     = "/"
        interval = "10s"
        timeout  = "2s"
        header {
          X-Y = ["z"]
        }
        check_restart {
          limit = 3
        }
      }
    }
    service {
      port     = "http"
      provider = "nomad"
      tags     = ["a"]
      check_restart {
        limit = 2
        grace = "5s"
      }
      check {
        name     = "alive"
        type     = "tcp"
        interval = "10s"
        timeout  = "2s"
      }
    }
    restart {
      attempts = 1
      mode     = "fail"
    }
    disconnect {
      stop_on_client_after = "30m"
      replace              = false
    }
    ephemeral_disk {
      size    = 400
      migrate = true
    }
    affinity {
      attribute = "${node.class}"
      value     = "gpu"
      weight    = -20
    }
    spread {
      attribute = "${node.datacenter}"
      target "dc1" {
        percent = 100
      }
    }
    scaling {
      min = 1
      max = 4
      policy {
        cooldown = "1m"
        check "x" {
          source = "prometheus"
          query  = "up"
        }
      }
    }
    volume "data" {
      type      = "host"
      source    = "data"
      read_only = true
    }
    task "train" {
      driver       = "raw_exec"
      kill_timeout = "30s"
      kill_signal  = "SIGUSR1"
      leader       = true
      user         = "root"
      config {
        command = "/bin/sh"
        args    = ["-c", "sleep 600"]
      }
      env {
        A     = "1"
        EMPTY = ""
      }
      logs {
        max_files     = 2
        max_file_size = 5
      }
      identity {
        env = true
      }
      identity {
        name = "s3"
        aud  = ["s3"]
        file = true
        ttl  = "1h"
      }
      template {
        data        = "x = {{ env \"A\" }}"
        destination = "local/x"
        change_mode = "signal"
        change_signal = "SIGHUP"
        uid = 0
      }
      template {
        data        = "y"
        destination = "local/y"
        change_mode = "script"
        change_script {
          command = "/bin/true"
          timeout = "3s"
        }
        wait {
          min = "1s"
          max = "2s"
        }
      }
      artifact {
        source = "https://example.com/x.tgz"
        options {
          checksum = "md5:00000000000000000000000000000000"
        }
      }
      volume_mount {
        volume      = "data"
        destination = "/data"
      }
      resources {
        cpu        = 500
        memory     = 256
        memory_max = 512
        device "nvidia/gpu" {
          count = 4
          constraint {
            attribute = "${device.attr.memory}"
            operator  = ">="
            value     = "10 GiB"
          }
          affinity {
            attribute = "${device.model}"
            value     = "H100"
          }
        }
      }
      action "hello" {
        command = "/bin/echo"
        args    = ["hello"]
      }
    }
    task "init" {
      driver = "raw_exec"
      lifecycle {
        hook = "prestart"
      }
      config {
        command = "/bin/true"
      }
      resources {
        cores  = 1
        memory = 20
      }
      restart {
        attempts = 5
      }
    }
  }
}
