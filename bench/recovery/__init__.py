"""How long a training stands still after a failure: this chart beside plain torchrun in a StatefulSet."""
