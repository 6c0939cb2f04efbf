"""Generators of the chart's files that follow from another source; `make verify` checks that they are up to date."""
