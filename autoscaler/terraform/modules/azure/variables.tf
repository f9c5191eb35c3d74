variable "nodes" {
  description = "The nodes that are to be there, by name. Set by caravan-terraform."
  type = map(object({
    purchase = optional(string, "")
    market   = optional(string, "on_demand")
  }))
  default = {}
}

variable "nodes_in_doubt" {
  description = "Nodes that an apply which was cut short may have made. Set by caravan-terraform; those that are there are taken into the state."
  type = map(object({
    purchase = optional(string, "")
    market   = optional(string, "on_demand")
  }))
  default = {}
}

variable "pool" {
  description = "The pool's name in the pools file; every node has it as meta caravan_pool."
  type        = string
}

variable "boot" {
  description = "What a node installs and joins; see module boot."
  type        = any
}

variable "near" {
  description = "Whether the nodes of one purchase are put near each other."
  type        = bool
  default     = true
}

variable "location" {
  description = "Such as \"westeurope\"."
  type        = string
}

variable "resource_group_name" {
  description = "The resource group of all nodes."
  type        = string
}

variable "size" {
  description = "Such as \"Standard_ND96isr_H100_v5\"."
  type        = string
}

variable "image_id" {
  description = "An image with the NVIDIA driver, curl, python3, cloud-init and systemd."
  type        = string
}

variable "subnet_id" {
  description = "The subnet of all nodes; its security group must let Nomad's ports and the jobs' traffic through."
  type        = string
}

variable "admin_username" {
  description = "The administrator's name."
  type        = string
  default     = "caravan"
}

variable "admin_public_key" {
  description = "The administrator's SSH public key."
  type        = string
}

variable "identity_ids" {
  description = "Managed identities of the nodes."
  type        = list(string)
  default     = []
}

variable "disk_gb" {
  description = "The size of the system's disk."
  type        = number
  default     = 200
}

variable "tags" {
  description = "More tags."
  type        = map(string)
  default     = {}
}
