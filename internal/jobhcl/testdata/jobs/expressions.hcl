# Variables, locals, functions, dynamic blocks, and references that stay.
variables {
  greeting = "hello"
}

variable "members" {
  type        = number
  description = "How many members"
  default     = 2
  validation {
    condition     = var.members > 0 && var.members <= 64
    error_message = "between 1 and 64"
  }
}

variable "groups" {
  type = map(object({ count = number, gpus = number }))
  default = {
    actor   = { count = 4, gpus = 1 }
    learner = { count = 1, gpus = 8 }
  }
}

variable "tags" {
  type    = list(string)
  default = ["a", "b"]
}

variable "optional" {
  type    = string
  default = ""
}

locals {
  total = local.per_member * var.members
  # Used before it is defined.
  per_member = 8
  names      = [for i in range(var.members) : format("member-%02d", i)]
  upper      = { for k, v in var.groups : upper(k) => v.gpus if v.gpus > 1 }
  device     = "${attr.unique.hostname}-${local.per_member}"
}

job "expressions" {
  type        = var.optional == "" ? "batch" : "service"
  datacenters = concat(["dc1"], [for t in var.tags : "dc-${t}"])

  meta = {
    total      = local.total
    names      = join(",", local.names)
    upper      = jsonencode(local.upper)
    digest     = sha256("x")
    b64        = base64encode("x")
    yaml       = yamlencode({ a = 1 })
    host       = local.device
    "key.${1}" = trimspace("  v ")
    fallback   = try(var.groups["nobody"].gpus, "none")
    splat      = join("-", values(var.groups)[*].count)
    converted  = convert("5", number) + 1
    greeting   = "${title(var.greeting)}, %{if var.members > 1}all%{else}you%{endif}!"
    percent    = "100%%{x} $${not.a.reference}"
    negative   = -local.per_member
  }

  dynamic "group" {
    for_each = var.groups
    labels   = [group.key]
    content {
      count = group.value.count

      dynamic "constraint" {
        for_each = var.tags
        iterator = tag
        content {
          attribute = "${meta.tag}"
          operator  = "set_contains_any"
          value     = "${tag.value}-${group.key}-${tag.key}"
        }
      }

      task "main" {
        driver = "raw_exec"
        config {
          command = "/bin/echo"
          args = [
            "${NOMAD_ALLOC_DIR}/x", "${ meta.spaces }", "${attr.a.b-c}", upper("${node.datacenter}"),
            "${meta["quoted-key"]}", "a${group.key}b${NOMAD_META_x}c", NOMAD_BARE,
          ]
        }
        resources {
          device "nvidia/gpu" {
            count = group.value.gpus
          }
        }
      }
    }
  }
}
