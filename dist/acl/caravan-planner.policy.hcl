# What the planner needs. It reads everything, because work that it does not
# manage takes room too, and changes jobs in the namespaces that it serves.
namespace "*" {
  capabilities = ["list-jobs", "read-job", "submit-job", "alloc-lifecycle"]
}

# Its records, in the namespace of state.namespace. A rule for one namespace
# replaces the one for all, so what stands above is said again.
namespace "default" {
  capabilities = ["list-jobs", "read-job", "submit-job", "alloc-lifecycle"]

  variables {
    path "caravan/*" {
      capabilities = ["read", "write", "destroy"]
    }
  }
}

node {
  policy = "read"
}

operator {
  policy = "read"
}
