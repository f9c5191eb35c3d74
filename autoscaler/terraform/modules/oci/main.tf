# Nodes that are instances in Oracle Cloud. Those of one purchase are in a compute cluster,
# a network for RDMA, of their own.

# Nodes in doubt are looked for by the names and tags that they are made with.
data "oci_core_instances" "in_doubt" {
  for_each = var.nodes_in_doubt

  compartment_id      = var.compartment_id
  availability_domain = var.availability_domain
  display_name        = each.key
}

data "oci_core_compute_clusters" "in_doubt" {
  for_each = toset([for node in var.nodes_in_doubt : node.purchase if var.near && node.purchase != ""])

  compartment_id      = var.compartment_id
  availability_domain = var.availability_domain
  display_name        = "${var.pool}-${each.key}"
}

locals {
  lives = {
    for name, there in data.oci_core_instances.in_doubt : name => [
      for i in there.instances : i.id if contains(["PROVISIONING", "STARTING", "RUNNING"], i.state) &&
      try(i.freeform_tags["caravan_pool"] == var.pool && i.freeform_tags["caravan_purchase"] == var.nodes_in_doubt[name].purchase, false)
    ]
  }
  found     = { for name, ids in local.lives : name => ids[0] if length(ids) > 0 && !contains(keys(var.nodes), name) }
  nodes     = merge({ for name in keys(local.found) : name => var.nodes_in_doubt[name] }, var.nodes)
  purchases = toset([for node in local.nodes : node.purchase if var.near && node.purchase != ""])
  clusters = {
    for purchase, there in data.oci_core_compute_clusters.in_doubt : purchase => [
      for c in flatten([for list in there.compute_cluster_collection : list.items]) : c.id if c.state == "ACTIVE"
    ]
  }
}

import {
  for_each = local.found
  to       = oci_core_instance.node[each.key]
  id       = each.value
}

# A node was made after the cluster that it is in. What the state knows stays as it is.
import {
  for_each = { for purchase, ids in local.clusters : purchase => ids[0] if length(ids) > 0 && contains(local.purchases, purchase) }
  to       = oci_core_compute_cluster.purchase[each.key]
  id       = each.value
}

module "boot" {
  source   = "../boot"
  nodes    = local.nodes
  pool     = var.pool
  settings = var.boot
}

resource "oci_core_compute_cluster" "purchase" {
  for_each = local.purchases

  availability_domain = var.availability_domain
  compartment_id      = var.compartment_id
  display_name        = "${var.pool}-${each.key}"
}

resource "oci_core_instance" "node" {
  for_each = local.nodes

  availability_domain  = var.availability_domain
  compartment_id       = var.compartment_id
  shape                = var.shape
  display_name         = each.key
  compute_cluster_id   = try(oci_core_compute_cluster.purchase[each.value.purchase].id, null)
  preserve_boot_volume = false

  metadata = {
    ssh_authorized_keys = var.ssh_public_key
    user_data           = base64gzip(module.boot.user_data[each.key])
  }

  source_details {
    source_type             = "image"
    source_id               = var.image_id
    boot_volume_size_in_gbs = var.disk_gb
  }

  create_vnic_details {
    subnet_id        = var.subnet_id
    assign_public_ip = false
    nsg_ids          = var.security_group_ids
  }

  dynamic "preemptible_instance_config" {
    for_each = each.value.market == "spot" ? ["spot"] : []

    content {
      preemption_action {
        type                 = "TERMINATE"
        preserve_boot_volume = false
      }
    }
  }

  freeform_tags = merge(var.tags, {
    caravan_pool     = var.pool
    caravan_node     = each.key
    caravan_purchase = each.value.purchase
  })

  # A newer image or another setting is for the nodes to come.
  lifecycle {
    ignore_changes = [source_details, metadata, freeform_tags]
  }
}
