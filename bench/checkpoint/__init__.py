"""How long a checkpoint holds the training up."""
