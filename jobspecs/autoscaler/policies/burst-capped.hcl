# The same for a small purse: at most 8 nodes in one go, and the whole pool below 200
# an hour. A purchase that is larger is not made in parts: it is not made.
scaling "burst-capped" {
  enabled = true
  min     = 0
  max     = 16

  policy {
    evaluation_interval = "30s"
    cooldown            = "2m"

    check "planner" {
      source = "caravan"
      query  = "nodes_wanted/cloud"

      strategy "caravan" {
        pool               = "cloud"
        max_scale_up       = "8"
        max_price_per_hour = "200"
      }
    }

    target "caravan-terraform" {
      pool                = "cloud"
      node_drain_deadline = "10m"
    }
  }
}
