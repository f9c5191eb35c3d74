# Nodes that are virtual machines in Azure. Those of one purchase are in a proximity
# placement group of their own.

# Nodes in doubt are looked for by their names, which are unique in the resource group, and
# by the tags that they are made with.
data "azurerm_resources" "in_doubt" {
  for_each = var.nodes_in_doubt

  name                = each.key
  resource_group_name = var.resource_group_name
  type                = "Microsoft.Compute/virtualMachines"

  required_tags = {
    caravan_pool     = var.pool
    caravan_purchase = each.value.purchase
  }
}

# An interface is made before its machine, and may be there without it.
data "azurerm_resources" "interface_in_doubt" {
  for_each = var.nodes_in_doubt

  name                = each.key
  resource_group_name = var.resource_group_name
  type                = "Microsoft.Network/networkInterfaces"
}

data "azurerm_subscription" "current" {
  for_each = length(var.nodes_in_doubt) > 0 ? toset(["this"]) : []
}

locals {
  found      = { for name, there in data.azurerm_resources.in_doubt : name => var.nodes_in_doubt[name] if length(there.resources) > 0 && !contains(keys(var.nodes), name) }
  nodes      = merge(local.found, var.nodes)
  interfaces = { for name, there in data.azurerm_resources.interface_in_doubt : name => var.nodes_in_doubt[name] if length(there.resources) > 0 && !contains(keys(var.nodes), name) }
  providers  = { for key, this in data.azurerm_subscription.current : key => "${this.id}/resourceGroups/${var.resource_group_name}/providers" }
  purchases  = toset([for node in local.nodes : node.purchase if var.near && node.purchase != ""])
}

import {
  for_each = local.found
  to       = azurerm_linux_virtual_machine.node[each.key]
  id       = "${local.providers["this"]}/Microsoft.Compute/virtualMachines/${each.key}"
}

import {
  for_each = local.interfaces
  to       = azurerm_network_interface.node[each.key]
  id       = "${local.providers["this"]}/Microsoft.Network/networkInterfaces/${each.key}"
}

# A node was made after the group that it is in. What the state knows stays as it is.
import {
  for_each = toset([for node in local.found : node.purchase if contains(local.purchases, node.purchase)])
  to       = azurerm_proximity_placement_group.purchase[each.key]
  id       = "${local.providers["this"]}/Microsoft.Compute/proximityPlacementGroups/${var.pool}-${each.key}"
}

module "boot" {
  source   = "../boot"
  nodes    = local.nodes
  pool     = var.pool
  settings = var.boot
}

resource "azurerm_proximity_placement_group" "purchase" {
  for_each = local.purchases

  name                = "${var.pool}-${each.key}"
  location            = var.location
  resource_group_name = var.resource_group_name
}

resource "azurerm_network_interface" "node" {
  for_each = merge(local.interfaces, local.nodes)

  name                = each.key
  location            = var.location
  resource_group_name = var.resource_group_name

  ip_configuration {
    name                          = "internal"
    subnet_id                     = var.subnet_id
    private_ip_address_allocation = "Dynamic"
  }
}

resource "azurerm_linux_virtual_machine" "node" {
  for_each = local.nodes

  name                         = each.key
  location                     = var.location
  resource_group_name          = var.resource_group_name
  size                         = var.size
  admin_username               = var.admin_username
  network_interface_ids        = [azurerm_network_interface.node[each.key].id]
  proximity_placement_group_id = try(azurerm_proximity_placement_group.purchase[each.value.purchase].id, null)
  source_image_id              = var.image_id
  custom_data                  = base64encode(module.boot.user_data[each.key])
  priority                     = each.value.market == "spot" ? "Spot" : "Regular"
  eviction_policy              = each.value.market == "spot" ? "Delete" : null

  admin_ssh_key {
    username   = var.admin_username
    public_key = var.admin_public_key
  }

  os_disk {
    caching              = "ReadWrite"
    storage_account_type = "Premium_LRS"
    disk_size_gb         = var.disk_gb
  }

  dynamic "identity" {
    for_each = length(var.identity_ids) == 0 ? [] : [var.identity_ids]

    content {
      type         = "UserAssigned"
      identity_ids = identity.value
    }
  }

  tags = merge(var.tags, {
    caravan_pool     = var.pool
    caravan_node     = each.key
    caravan_purchase = each.value.purchase
  })

  # A newer image or another setting is for the nodes to come.
  lifecycle {
    ignore_changes = [source_image_id, custom_data, tags]
  }
}
