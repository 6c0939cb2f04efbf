"""One model, many ranks: the mesh, what is applied to the model on it, and the optimizer step that fits all forms."""
