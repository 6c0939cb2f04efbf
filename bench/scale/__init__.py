"""How the chart and the operator's commands fare with a release of 1,000 pods."""
