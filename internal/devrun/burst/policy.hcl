scaling "cloud" {
  enabled = true
  min     = 0
  max     = 4

  policy {
    evaluation_interval = "3s"
    cooldown            = "1s"

    check "planner" {
      source = "caravan"
      query  = "nodes_wanted/cloud"

      strategy "caravan" {
        pool = "cloud"
      }
    }

    target "caravan-terraform" {
      pool                = "cloud"
      node_drain_deadline = "20s"
    }
  }
}
