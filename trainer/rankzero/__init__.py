"""rankzero: multi-node PyTorch training on Kubernetes, from bare nodes to the post-mortem."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("rankzero")
except PackageNotFoundError:  # a source tree on PYTHONPATH, as in a mounted checkout
    __version__ = "0+source"
