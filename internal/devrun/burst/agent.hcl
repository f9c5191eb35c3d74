log_level  = "DEBUG"
plugin_dir = "{{.Plugins}}"

http {
  bind_port = {{.Port}}
}

nomad {
  address = "{{.Nomad}}"
}

policy {
  dir = "{{.Dir}}/policies"
}

apm "caravan" {
  driver = "caravan-apm"
  config = {
    planner_address = "{{.Planner}}"
  }
}

strategy "caravan" {
  driver = "caravan-strategy"
  config = {
    planner_address = "{{.Planner}}"
  }
}

target "caravan-terraform" {
  driver = "caravan-terraform"
  config = {
    pools_file      = "{{.Dir}}/pools.hcl"
    planner_address = "{{.Planner}}"
    terraform_init  = "true"
  }
}
