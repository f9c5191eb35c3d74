# Nodes that are instances in Oracle Cloud. Those of one purchase are in a compute cluster,
# a network for RDMA, of their own.

locals {
  purchases = toset([for node in var.nodes : node.purchase if var.near && node.purchase != ""])
}

module "boot" {
  source   = "../boot"
  nodes    = var.nodes
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
  for_each = var.nodes

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
