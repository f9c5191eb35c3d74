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

variable "client" {
  description = "The command that is a Nomad client, to which -node, -data-dir and -meta are added: [\"nomad\", \"agent\", \"-config\", \"/etc/nomad.d/burst.hcl\"]."
  type        = list(string)

  validation {
    condition     = length(var.client) > 0
    error_message = "Name the program that is the client."
  }
}

variable "directory" {
  description = "Where each node's data is, in a directory of its name that goes with it."
  type        = string
}

variable "meta" {
  description = "More node meta."
  type        = map(string)
  default     = {}
}

variable "boot_seconds" {
  description = "How long a node takes until its client starts, as a machine that boots does."
  type        = number
  default     = 0
}

variable "fail" {
  description = "What the cloud says instead of making a node, by the node's name."
  type        = map(string)
  default     = {}
}
