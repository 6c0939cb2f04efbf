"""Real operators for the chart's other kinds and queues, in the local cluster on demand: built, installed, removed."""
