# Nodes that are virtual machines in Azure. Those of one purchase are in a proximity
# placement group of their own.

locals {
  purchases = toset([for node in var.nodes : node.purchase if var.near && node.purchase != ""])
}

module "boot" {
  source   = "../boot"
  nodes    = var.nodes
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
  for_each = var.nodes

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
  for_each = var.nodes

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
