"""Checkpoints that can be trusted: whole or not there, verified before use, written while training goes on."""

from rankzero.train.checkpoint.checkpoints import Checkpoints

__all__ = ["Checkpoints"]
