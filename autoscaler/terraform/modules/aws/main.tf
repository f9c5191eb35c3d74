# Nodes that are EC2 instances. Those of one purchase are in a cluster placement group of
# their own, so all of them have to be had at once.

# Nodes in doubt are looked for by the tags that they are made with.
data "aws_instances" "in_doubt" {
  for_each = var.nodes_in_doubt

  instance_state_names = ["pending", "running"]

  instance_tags = {
    caravan_pool     = var.pool
    caravan_node     = each.key
    caravan_purchase = each.value.purchase
  }
}

locals {
  found     = { for name, there in data.aws_instances.in_doubt : name => there.ids[0] if length(there.ids) > 0 && !contains(keys(var.nodes), name) }
  nodes     = merge({ for name in keys(local.found) : name => var.nodes_in_doubt[name] }, var.nodes)
  purchases = toset([for node in local.nodes : node.purchase if var.near && node.purchase != ""])
}

import {
  for_each = local.found
  to       = aws_instance.node[each.key]
  id       = each.value
}

# A node was made after the group that it is in. What the state knows stays as it is.
import {
  for_each = toset([for name in keys(local.found) : var.nodes_in_doubt[name].purchase if contains(local.purchases, var.nodes_in_doubt[name].purchase)])
  to       = aws_placement_group.purchase[each.key]
  id       = "${var.pool}-${each.key}"
}

module "boot" {
  source   = "../boot"
  nodes    = local.nodes
  pool     = var.pool
  settings = var.boot
}

resource "aws_placement_group" "purchase" {
  for_each = local.purchases

  name     = "${var.pool}-${each.key}"
  strategy = "cluster"
}

resource "aws_instance" "node" {
  for_each = local.nodes

  ami                                  = var.ami
  instance_type                        = var.instance_type
  subnet_id                            = var.subnet_id
  vpc_security_group_ids               = var.security_group_ids
  key_name                             = var.key_name
  iam_instance_profile                 = var.iam_instance_profile
  placement_group                      = try(aws_placement_group.purchase[each.value.purchase].name, null)
  user_data_base64                     = base64gzip(module.boot.user_data[each.key])
  instance_initiated_shutdown_behavior = "terminate"

  dynamic "instance_market_options" {
    for_each = each.value.market == "spot" ? ["spot"] : []

    content {
      market_type = "spot"

      spot_options {
        spot_instance_type             = "one-time"
        instance_interruption_behavior = "terminate"
      }
    }
  }

  metadata_options {
    http_tokens = "required"
  }

  root_block_device {
    volume_size           = var.disk_gb
    volume_type           = "gp3"
    delete_on_termination = true
  }

  tags = merge(var.tags, {
    Name             = each.key
    caravan_pool     = var.pool
    caravan_node     = each.key
    caravan_purchase = each.value.purchase
  })

  # A newer image or another setting is for the nodes to come: changing those that run
  # would be refused.
  lifecycle {
    ignore_changes = [ami, user_data_base64, tags]
  }
}
