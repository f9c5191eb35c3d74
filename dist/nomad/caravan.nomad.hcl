# Two planners: one leads, the other answers and takes over.
job "caravan" {
  type     = "service"
  priority = 90

  group "planner" {
    count = 2

    constraint {
      operator = "distinct_hosts"
      value    = "true"
    }

    network {
      port "api" {
        static = 4656
      }
    }

    service {
      name     = "caravan"
      port     = "api"
      provider = "nomad"
    }

    task "planner" {
      driver = "exec"

      config {
        command = "/usr/local/bin/caravan"
        args    = ["agent", "-config", "${NOMAD_SECRETS_DIR}/caravan.hcl"]
      }

      # The token lies in the Nomad Variable nomad/jobs/caravan, key "token".
      template {
        destination = "${NOMAD_SECRETS_DIR}/token"
        data        = "{{ with nomadVar \"nomad/jobs/caravan\" }}{{ .token }}{{ end }}"
        change_mode = "noop"
      }

      template {
        destination = "${NOMAD_SECRETS_DIR}/caravan.hcl"
        data        = <<-EOT
          nomad {
            address    = "http://{{ env "attr.unique.network.ip-address" }}:4646"
            token_file = "{{ env "NOMAD_SECRETS_DIR" }}/token"
          }
          listen {
            address   = "0.0.0.0:4656"
            advertise = "http://{{ env "NOMAD_ADDR_api" }}"
          }
        EOT
      }

      resources {
        cpu    = 1000
        memory = 512
      }
    }
  }
}
