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

variable "project" {
  description = "The project of all nodes."
  type        = string
}

variable "region" {
  description = "The region of the placement policies; it must be the zone's."
  type        = string
}

variable "zone" {
  description = "The zone of all nodes."
  type        = string
}

variable "machine_type" {
  description = "Such as \"a3-highgpu-8g\"."
  type        = string
}

variable "accelerator" {
  description = "GPUs to be attached to a machine type that has none."
  type        = object({ type = string, count = number })
  default     = null
}

variable "image" {
  description = "An image with the NVIDIA driver, curl, python3 and systemd."
  type        = string
}

variable "subnetwork" {
  description = "The subnetwork of all nodes."
  type        = string
}

variable "network_tags" {
  description = "Tags by which firewall rules let Nomad's ports and the jobs' traffic through."
  type        = list(string)
  default     = []
}

variable "service_account" {
  description = "The e-mail address of the nodes' service account."
  type        = string
  default     = null
}

variable "disk_gb" {
  description = "The size of the boot disk."
  type        = number
  default     = 200
}

variable "labels" {
  description = "More labels."
  type        = map(string)
  default     = {}
}
