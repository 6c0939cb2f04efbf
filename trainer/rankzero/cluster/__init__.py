"""The operator's side: what is asked of the Kubernetes API from outside a pod. Needs ``rankzero[cluster]``."""
