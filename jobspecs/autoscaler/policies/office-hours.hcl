# Two nodes for interactive work from eight to six on working days, none otherwise.
scaling "office-hours" {
  enabled = true
  min     = 0
  max     = 2

  policy {
    evaluation_interval = "1m"
    cooldown            = "5m"

    check "day" {
      strategy "fixed-value" {
        value = "2"
      }

      schedule {
        start    = "0 8 * * 1-5"
        duration = "10h"
      }
    }

    check "night" {
      group = "night"

      strategy "fixed-value" {
        value = "0"
      }
    }

    target "terraform-count" {
      pool                = "counted"
      node_drain_deadline = "30m"
    }
  }
}
