variable "nodes" {
  description = "The nodes by name."
  type = map(object({
    purchase = optional(string, "")
    market   = optional(string, "on_demand")
  }))
}

variable "pool" {
  description = "The pool's name in the pools file."
  type        = string
}

variable "settings" {
  description = "What a node installs and joins. Downloads are checked by their SHA-256."
  type = object({
    nomad      = object({ url = string, sha256 = string })
    plugins    = map(object({ url = string, sha256 = string, config = optional(string, "") }))
    retry_join = list(string)
    datacenter = optional(string, "dc1")
    node_pool  = optional(string, "default")
    node_class = optional(string, "burst")
    meta       = optional(map(string), {})
    files      = optional(map(string), {})
    extra      = optional(string, "")
  })
}
