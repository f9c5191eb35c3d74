# Nodes that are Compute Engine instances. Those of one purchase have a compact placement
# policy of their own.

# The names of instances are unique, so a node in doubt has one that is known. There is no
# list of those that are there: an import of one that is not fails, which says just that.
locals {
  found     = { for name, node in var.nodes_in_doubt : name => node if !contains(keys(var.nodes), name) }
  nodes     = merge(local.found, var.nodes)
  purchases = toset([for node in local.nodes : node.purchase if var.near && node.purchase != ""])
}

import {
  for_each = local.found
  to       = google_compute_instance.node[each.key]
  id       = "projects/${var.project}/zones/${var.zone}/instances/${each.key}"
}

# A node was made after the policy that it has. What the state knows stays as it is.
import {
  for_each = toset([for node in local.found : node.purchase if contains(local.purchases, node.purchase)])
  to       = google_compute_resource_policy.purchase[each.key]
  id       = "projects/${var.project}/regions/${var.region}/resourcePolicies/${var.pool}-${each.key}"
}

module "boot" {
  source   = "../boot"
  nodes    = local.nodes
  pool     = var.pool
  settings = var.boot
}

resource "google_compute_resource_policy" "purchase" {
  for_each = local.purchases

  project = var.project
  name    = "${var.pool}-${each.key}"
  region  = var.region

  group_placement_policy {
    vm_count    = length([for node in local.nodes : node if node.purchase == each.key])
    collocation = "COLLOCATED"
  }

  # When some of its nodes have gone it stays what it was.
  lifecycle {
    ignore_changes = [group_placement_policy]
  }
}

resource "google_compute_instance" "node" {
  for_each = local.nodes

  project           = var.project
  name              = each.key
  machine_type      = var.machine_type
  zone              = var.zone
  resource_policies = try([google_compute_resource_policy.purchase[each.value.purchase].self_link], [])
  tags              = var.network_tags

  labels = merge(var.labels, {
    caravan_pool = var.pool
    caravan_node = each.key
  })

  metadata = {
    startup-script = module.boot.user_data[each.key]
  }

  boot_disk {
    auto_delete = true

    initialize_params {
      image = var.image
      size  = var.disk_gb
      type  = "pd-ssd"
    }
  }

  network_interface {
    subnetwork = var.subnetwork
    nic_type   = "GVNIC"
  }

  # Machine types with GPUs of their own (a3, a2, g2) need none.
  dynamic "guest_accelerator" {
    for_each = var.accelerator == null ? [] : [var.accelerator]

    content {
      type  = guest_accelerator.value.type
      count = guest_accelerator.value.count
    }
  }

  # GPUs cannot be migrated. A node that ends does not come back by itself: what is
  # wanted then is decided anew.
  scheduling {
    on_host_maintenance         = "TERMINATE"
    automatic_restart           = false
    preemptible                 = each.value.market == "spot"
    provisioning_model          = each.value.market == "spot" ? "SPOT" : "STANDARD"
    instance_termination_action = each.value.market == "spot" ? "DELETE" : null
  }

  dynamic "service_account" {
    for_each = var.service_account == null ? [] : [var.service_account]

    content {
      email  = service_account.value
      scopes = ["cloud-platform"]
    }
  }

  # A newer image or another setting is for the nodes to come.
  lifecycle {
    ignore_changes = [boot_disk, metadata, labels]
  }
}
