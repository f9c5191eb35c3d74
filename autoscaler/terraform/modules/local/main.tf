# Nodes that are Nomad clients' processes on this machine: for the demo and tests of
# what clouds do elsewhere. It needs no provider, so terraform init needs no network.

locals {
  # Of the nodes in doubt those that start.sh had begun; it takes over what lives of them.
  begun = { for name, node in var.nodes_in_doubt : name => node if fileexists("${abspath(var.directory)}/${name}/begun") }
  nodes = merge(local.begun, var.nodes)
}

resource "terraform_data" "node" {
  for_each = local.nodes

  # Destroy-time provisioners see only what is in here.
  input = {
    name      = each.key
    directory = "${abspath(var.directory)}/${each.key}"
    stop      = abspath("${path.module}/stop.sh")
  }

  provisioner "local-exec" {
    command     = abspath("${path.module}/start.sh")
    interpreter = ["/bin/sh"]
    environment = {
      NODE_NAME      = each.key
      NODE_DIRECTORY = self.input.directory
      NODE_CLIENT    = join("\n", var.client)
      NODE_META = join("\n", concat([
        "caravan_pool=${var.pool}",
        "caravan_node=${each.key}",
        "caravan_market=${each.value.market}",
        "caravan_purchase=${each.value.purchase}",
      ], [for k, v in var.meta : "${k}=${v}"]))
      NODE_FAIL  = try(var.fail[each.key], "")
      NODE_DELAY = tostring(var.boot_seconds)
    }
  }

  provisioner "local-exec" {
    when        = destroy
    command     = self.input.stop
    interpreter = ["/bin/sh"]
    environment = {
      NODE_NAME      = self.input.name
      NODE_DIRECTORY = self.input.directory
    }
  }
}
