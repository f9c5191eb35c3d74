# The least that a job needs.
job "plain" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command = "/bin/true"
      }
      resources {
        device "gpu" {}
      }
    }
  }
}
