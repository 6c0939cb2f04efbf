"""The local cluster: three Kubernetes nodes in containers of this machine, built from pinned sources."""
