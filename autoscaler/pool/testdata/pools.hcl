currency = "EUR"

data_set "imagenet" {
  gb = 150 # 10^9 bytes; egress_price is what a GB costs to leave where it is kept
}

pool "eu-h100" {
  provider      = "aws"
  region        = "eu-west-1"
  instance_type = "p5.48xlarge"
  quota         = 16 # nodes at most
  boot_time     = "6m"
  join_timeout  = "15m"
  near          = "block" # the nodes of one purchase are one block
  transfer_gbps = 20
  carbon        = 290 # g of CO2 per kWh
  power_kw      = 10.2
  data          = ["laion"]

  node {
    gpus       = 8
    model      = "NVIDIA H100 80GB HBM3"
    numa_nodes = 2
    cpu_mhz    = 440000
    memory_mib = 2000000
    disk_mib   = 28000000
    class      = "burst"
    attributes = { "kernel.name" = "linux", "cpu.arch" = "amd64", "driver.caravan" = "1" }
  }

  price { # for a node and hour
    on_demand      = 55.04
    spot           = 24.9
    egress         = 0.09 # for a GB
    min_billing    = "1m"
    billing_period = "1s"
  }

  terraform {
    working_directory = "terraform/aws"
  }
}
