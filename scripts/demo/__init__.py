"""The whole road once: cluster, nodes, image, experiment, a deleted pod, the end, a report."""
