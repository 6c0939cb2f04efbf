"""Imported before Ansible, which puts an object in the place of sys.intern that PyTorch's compiler refuses later on."""

import torch._dynamo  # noqa: F401
