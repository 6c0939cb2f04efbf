"""Generators of files that follow from another source; `make verify` checks that they are up to date."""
