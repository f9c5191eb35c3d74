# A cloud on this machine: its nodes are clients' processes.
currency = "EUR"

pool "cloud" {
  provider      = "local"
  region        = "here"
  instance_type = "dgx"
  quota         = 4
  boot_time     = "10s"
  join_timeout  = "90s"
  near          = "rack"

  node {
    gpus       = 8
    model      = "NVIDIA H100 80GB HBM3"
    cpu_mhz    = 1000
    memory_mib = 1000
    disk_mib   = 1000
    attributes = { "kernel.name" = "linux", "driver.raw_exec" = "1" }
  }

  price {
    on_demand      = 36
    billing_period = "1s"
  }

  terraform {
    working_directory = "terraform"
  }
}
