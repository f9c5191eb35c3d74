# What a machine does when it boots: it installs Nomad and Caravan's plugins, and joins
# the cluster under the name and with the meta of its node. All clouds' modules use it.

locals {
  agent = {
    for name, node in var.nodes : name => jsonencode({
      name       = name
      datacenter = var.settings.datacenter
      data_dir   = "/opt/nomad/data"
      plugin_dir = "/opt/nomad/plugins"
      telemetry  = { publish_allocation_metrics = true }
      client = {
        enabled     = true
        node_class  = var.settings.node_class
        node_pool   = var.settings.node_pool
        server_join = { retry_join = var.settings.retry_join }
        meta = merge(var.settings.meta, {
          caravan_pool     = var.pool
          caravan_node     = name
          caravan_market   = node.market
          caravan_purchase = node.purchase
        })
      }
    })
  }
  plugins = join("\n", [for name, plugin in var.settings.plugins : "plugin \"${name}\" {\n  config {\n${plugin.config}\n  }\n}"])
}

output "user_data" {
  description = "The script that each node runs when it boots."
  value = {
    for name, node in var.nodes : name => templatefile("${path.module}/boot.sh.tftpl", {
      settings = var.settings
      files = merge(var.settings.files, {
        "/etc/nomad.d/client.json" = local.agent[name]
        "/etc/nomad.d/plugins.hcl" = local.plugins
        "/etc/nomad.d/extra.hcl"   = var.settings.extra
      })
    })
  }
}
