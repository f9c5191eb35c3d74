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

variable "ami" {
  description = "An image with the NVIDIA driver, curl, python3 and systemd."
  type        = string
}

variable "instance_type" {
  description = "Such as \"p5.48xlarge\"."
  type        = string
}

variable "subnet_id" {
  description = "The subnet, and so the zone, of all nodes."
  type        = string
}

variable "security_group_ids" {
  description = "They must let Nomad's ports and the jobs' traffic through."
  type        = list(string)
}

variable "iam_instance_profile" {
  description = "For retry_join by tags, and for what jobs may reach."
  type        = string
  default     = null
}

variable "key_name" {
  description = "An SSH key pair."
  type        = string
  default     = null
}

variable "disk_gb" {
  description = "The size of the root disk."
  type        = number
  default     = 200
}

variable "tags" {
  description = "More tags."
  type        = map(string)
  default     = {}
}
