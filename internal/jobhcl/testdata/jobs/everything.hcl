# One of nearly everything that a job file can hold.
job "everything" {
  id          = "everything-7"
  name        = "Every block"
  region      = "global"
  namespace   = "research"
  type        = "service"
  priority    = 70
  all_at_once = true
  datacenters = ["dc1", "dc*"]
  node_pool   = "gpu"

  meta {
    caravan_gang  = "job"
    caravan_queue = "research/vision"
  }

  ui {
    description = "A **job** with everything"
    link {
      label = "Runbook"
      url   = "https://example.test/runbook"
    }
    link {
      label = "Board"
      url   = "https://example.test/board"
    }
  }

  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  constraint {
    distinct_hosts = true
  }
  constraint {
    distinct_property = "${meta.caravan_rack}"
    value             = "2"
  }
  constraint {
    attribute = "${attr.driver.version}"
    version   = ">= 550, < 600"
  }
  constraint {
    attribute = "${attr.nomad.version}"
    semver    = ">= 1.9.0"
  }
  constraint {
    attribute = "${node.unique.name}"
    regexp    = "^gpu-[0-9]+$"
  }
  constraint {
    attribute    = "${meta.fabric}"
    set_contains = "ib,roce"
  }
  constraint {
    attribute = "${meta.maintenance}"
    operator  = "is_not_set"
  }
  constraint {
    operator = "distinct_hosts"
    value    = "false"
  }

  affinity {
    attribute = "${meta.caravan_block}"
    value     = "b1"
    weight    = 75
  }
  affinity {
    attribute        = "${meta.fabric}"
    set_contains_any = "ib,roce"
    weight           = -20
  }
  affinity {
    attribute = "${attr.cpu.arch}"
    regexp    = "amd64|arm64"
  }

  spread {
    attribute = "${meta.caravan_rack}"
    weight    = 60
    target "r1" {
      percent = 70
    }
    target "r2" {
      percent = 30
    }
  }

  update {
    max_parallel      = 2
    stagger           = "45s"
    health_check      = "task_states"
    min_healthy_time  = "11s"
    healthy_deadline  = "3m"
    progress_deadline = "8m"
    auto_revert       = true
    auto_promote      = false
    canary            = 1
  }
  migrate {
    max_parallel     = 1
    health_check     = "checks"
    min_healthy_time = "11s"
    healthy_deadline = "2m"
  }
  reschedule {
    attempts       = 3
    interval       = "1h"
    delay          = "20s"
    delay_function = "exponential"
    max_delay      = "10m"
    unlimited      = false
  }

  vault {
    policies = ["reader"]
  }

  group "workers" {
    count                      = 3
    shutdown_delay             = "4s"
    prevent_reschedule_on_lost = true

    constraint {
      attribute = "${node.class}"
      operator  = "!="
      value     = "spot"
    }
    meta {
      caravan_min = "2"
      caravan_max = "6"
    }
    restart {
      attempts         = 1
      interval         = "5m"
      delay            = "15s"
      mode             = "fail"
      render_templates = true
    }
    disconnect {
      lost_after = "2m"
      replace    = false
      reconcile  = "keep_original"
    }
    ephemeral_disk {
      size    = 4000
      sticky  = true
      migrate = true
    }
    scaling {
      min     = 2
      max     = 6
      enabled = false
      policy {
        cooldown = "1m"
        check "pending" {
          source = "caravan"
          query  = "pending_gpus"
          strategy "target-value" {
            target = 0.5
          }
        }
      }
    }
    network {
      mode     = "bridge"
      hostname = "worker-${NOMAD_ALLOC_INDEX}"
      port "rendezvous" {}
      port "metrics" {
        static = 9400
      }
      port "http" {
        to           = 8080
        host_network = "storage"
      }
      dns {
        servers  = ["10.0.0.2"]
        searches = ["cluster.test"]
        options  = ["ndots:2"]
      }
    }
    volume "data" {
      type            = "csi"
      source          = "datasets"
      read_only       = true
      access_mode     = "multi-node-reader-only"
      attachment_mode = "file-system"
      per_alloc       = false
      mount_options {
        fs_type     = "ext4"
        mount_flags = ["noatime"]
      }
    }
    volume "scratch" {
      type   = "host"
      source = "nvme"
    }
    service {
      name        = "workers"
      provider    = "nomad"
      port        = "http"
      tags        = ["gpu", "${NOMAD_ALLOC_ID}"]
      canary_tags = ["canary"]
      meta {
        team = "vision"
      }
      check {
        name     = "alive"
        type     = "http"
        path     = "/health"
        method   = "GET"
        interval = "10s"
        timeout  = "2s"
        header {
          Accept = ["application/json"]
        }
        check_restart {
          limit = 3
          grace = "90s"
        }
      }
    }

    task "fetch" {
      driver = "exec"
      lifecycle {
        hook    = "prestart"
        sidecar = false
      }
      config {
        command = "/bin/sh"
      }
    }

    task "train" {
      driver         = "docker"
      user           = "1000"
      leader         = true
      kill_timeout   = "90s"
      kill_signal    = "SIGUSR1"
      shutdown_delay = "3s"

      config {
        image    = "registry.example.test/train:2026.10"
        args     = ["--rank", "${NOMAD_ALLOC_INDEX}", "--port=${NOMAD_PORT_rendezvous}"]
        shm_size = 17179869184
        ratio    = 0.75
        fast     = true
        nothing  = null
        labels = {
          team = "vision"
        }
        ulimit {
          memlock = "-1"
        }
        mount {
          type   = "bind"
          source = "local"
          bind_options {
            propagation = "rshared"
          }
        }
        mount {
          type = "tmpfs"
        }
        logging "driver" "x" {
          tag = "t"
        }
        list_of_maps = [{ a = 1 }, { b = [1, 2.5, "x"] }]
        mixed        = [{ a = 1 }, 2]
      }
      env {
        NCCL_DEBUG = "INFO"
        BLOCKS     = 7
        ON         = true
      }
      meta = {
        "with.dots" = "yes"
        plain       = "1"
      }
      logs {
        max_files     = 5
        max_file_size = 50
        disabled      = false
      }
      resources {
        cpu        = 4000
        memory     = 65536
        memory_max = 131072
        device "nvidia/gpu" {
          count = 8
          constraint {
            attribute = "${device.attr.memory}"
            operator  = ">="
            value     = "40 GiB"
          }
          constraint {
            attribute = "${device.attr.nvlink_island_size}"
            operator  = ">="
            value     = "4"
          }
          affinity {
            attribute = "${device.model}"
            regexp    = "H100"
            weight    = 50
          }
        }
        numa {
          affinity = "prefer"
          devices  = ["nvidia/gpu"]
        }
      }
      restart {
        attempts = 0
      }
      artifact {
        source      = "https://example.test/code.tar.gz"
        destination = "local/code"
        mode        = "dir"
        options {
          checksum = "sha256:00"
        }
        headers {
          X-Token = "t"
        }
      }
      template {
        data        = <<EOT
port = {{ env "NOMAD_PORT_http" }}
dir  = ${NOMAD_TASK_DIR}
EOT
        destination = "local/config.toml"
        change_mode = "script"
        change_script {
          command       = "/bin/reload"
          fail_on_error = true
        }
        wait {
          min = "5s"
          max = "1m"
        }
      }
      template {
        source        = "local/in.tpl"
        destination   = "secrets/out.env"
        env           = true
        change_mode   = "signal"
        change_signal = "SIGHUP"
        perms         = "0600"
        uid           = 1000
      }
      volume_mount {
        volume           = "data"
        destination      = "/data"
        read_only        = true
        propagation_mode = "private"
      }
      identity {
        env = true
      }
      identity {
        name        = "object-store"
        aud         = ["store.example.test"]
        file        = true
        change_mode = "signal"
        ttl         = "1h"
      }
      action "snapshot" {
        command = "/bin/kill"
        args    = ["-USR2", "1"]
      }
      scaling "cpu" {
        min = 100
        max = 8000
        policy {
          cooldown = "5m"
        }
      }
      dispatch_payload {
        file = "input.json"
      }
      csi_plugin {
        id        = "store"
        type      = "node"
        mount_dir = "/csi"
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
        args    = ["-c", "tail -F ../alloc/logs/train.stdout.0"]
      }
      vault {
        role         = "shipper"
        change_mode  = "noop"
        disable_file = true
      }
    }
  }
}
