# Whole gangs' worth of nodes, bought when a deadline or a wait is worth their price.
# The planner weighs that; here stands what is allowed at most.
scaling "burst" {
  enabled = true
  min     = 0
  max     = 32

  policy {
    evaluation_interval = "15s"
    cooldown            = "30s"

    check "planner" {
      source = "caravan"
      query  = "nodes_wanted/cloud"

      strategy "caravan" {
        pool = "cloud"
      }
    }

    target "caravan-terraform" {
      pool                = "cloud"
      node_drain_deadline = "15m"
    }
  }
}
