# A stock strategy on Caravan's figures, without deadlines and prices: one node more
# while somebody has waited for over half an hour, one less while nobody waits.
scaling "queue-wait" {
  enabled = true
  min     = 0
  max     = 8

  policy {
    evaluation_interval = "1m"
    cooldown            = "10m"

    check "somebody_waits" {
      source       = "caravan"
      query        = "queue_wait_s"
      query_window = "5m"
      group        = "wait"

      strategy "threshold" {
        lower_bound           = "1800"
        delta                 = "1"
        within_bounds_trigger = "3"
      }
    }

    check "nobody_waits" {
      source       = "caravan"
      query        = "queue_gangs"
      query_window = "5m"
      group        = "wait"

      strategy "threshold" {
        upper_bound           = "0.5"
        delta                 = "-1"
        within_bounds_trigger = "3"
      }
    }

    target "terraform-count" {
      pool                = "counted"
      node_drain_deadline = "15m"
    }
  }
}
