# Nomad adds tasks, ports, checks and constraints to a job with Consul Connect.
job "mesh" {
  group "api" {
    network {
      mode = "bridge"
      port "expose" {}
    }
    service {
      name = "api"
      port = "9001"
      connect {
        sidecar_service {
          proxy {
            upstreams {
              destination_name = "db"
              local_bind_port  = 5432
            }
          }
        }
      }
      check {
        expose   = true
        type     = "http"
        path     = "/health"
        interval = "10s"
        timeout  = "2s"
      }
    }
    task "api" {
      driver = "docker"
      config {
        image = "example/api:1"
      }
      resources {
        device "nvidia/gpu" {}
      }
    }
  }
}
