"""Data that is packed once into shards and read back exactly: format, packing, sources, cache, order, loader.

Everything down to ``sources`` works without PyTorch, so that ``rankzero pack`` does too.
"""
