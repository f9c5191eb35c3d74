output "nodes" {
  description = "The directory of each node."
  value       = { for name, node in terraform_data.node : name => node.input.directory }
}
