"""What the library costs a training loop: the same steps with it and without, in turns."""
