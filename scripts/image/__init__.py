"""Build the trainer image: ``python -m scripts.image``."""
