# The pools of the policies here. docs/burst.md has each key.
currency = "USD"

pool "cloud" {
  provider      = "aws"
  region        = "us-east-1"
  instance_type = "p5.48xlarge"
  quota         = 16
  boot_time     = "6m"
  join_timeout  = "15m"
  spot_lifetime = "12h"
  near          = "block"

  levels = {
    region = "aws-us-east-1"
  }

  node {
    gpus       = 8
    model      = "NVIDIA H100 80GB HBM3"
    cpu_mhz    = 480000
    cores      = 96
    memory_mib = 2000000
    disk_mib   = 28000000
    attributes = { "kernel.name" = "linux", "cpu.arch" = "amd64", "driver.caravan" = "1" }
  }

  price {
    on_demand      = 55.04
    spot           = 24.5
    egress         = 0.09
    min_billing    = "1m"
    billing_period = "1s"
  }

  terraform {
    working_directory = "/etc/caravan/terraform/cloud"
  }
}

pool "counted" {
  provider      = "aws"
  region        = "us-east-1"
  instance_type = "g6.12xlarge"
  quota         = 8
  boot_time     = "4m"

  node {
    gpus       = 4
    model      = "NVIDIA L4"
    cpu_mhz    = 120000
    cores      = 24
    memory_mib = 190000
    disk_mib   = 3000000
    attributes = { "kernel.name" = "linux", "cpu.arch" = "amd64", "driver.caravan" = "1" }
  }

  price {
    on_demand      = 4.6
    billing_period = "1s"
  }

  terraform {
    working_directory = "/etc/caravan/terraform/counted"
  }
}
