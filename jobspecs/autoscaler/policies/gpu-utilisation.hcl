# A stock strategy on GPUs in use, which Nomad's own metrics do not know: as many nodes
# as keep 85 % of the cluster's GPUs busy.
scaling "gpu-utilisation" {
  enabled = true
  min     = 1
  max     = 8

  policy {
    evaluation_interval = "1m"
    cooldown            = "10m"

    check "utilisation" {
      source       = "caravan"
      query        = "avg_gpu_utilisation"
      query_window = "10m"

      strategy "target-value" {
        target         = "0.85"
        max_scale_up   = "2"
        max_scale_down = "1"
      }
    }

    target "terraform-count" {
      pool                = "counted"
      node_drain_deadline = "15m"
    }
  }
}
