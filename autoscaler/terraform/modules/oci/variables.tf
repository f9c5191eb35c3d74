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

variable "availability_domain" {
  description = "Such as \"Uocm:PHX-AD-1\"."
  type        = string
}

variable "compartment_id" {
  description = "The compartment's OCID."
  type        = string
}

variable "shape" {
  description = "Such as \"BM.GPU.H100.8\". Compute clusters take bare metal with RDMA only: for others set near to false."
  type        = string
}

variable "image_id" {
  description = "The OCID of an image with the NVIDIA driver, curl, python3, cloud-init and systemd."
  type        = string
}

variable "subnet_id" {
  description = "The subnet of all nodes."
  type        = string
}

variable "security_group_ids" {
  description = "They must let Nomad's ports and the jobs' traffic through."
  type        = list(string)
  default     = []
}

variable "ssh_public_key" {
  description = "The administrator's SSH public key."
  type        = string
  default     = ""
}

variable "disk_gb" {
  description = "The size of the boot volume."
  type        = number
  default     = 200
}

variable "tags" {
  description = "More tags."
  type        = map(string)
  default     = {}
}
