"""Fail the build of the stand-in base if the trim went too far. Usage: ``python smoke.py TORCH_VERSION``."""

import importlib
import sys

import torch
from torch import distributed, nn
from torch._C._distributed_c10d import HashStore

NEEDED = (
    "numpy",
    "torch._dynamo",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
    "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.device_mesh",
    "torch.distributed.elastic.multiprocessing.errors",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.run",
    "torch.distributed.tensor.parallel",
    "torch.nn.parallel",
    "torch.utils.data.distributed",
)
"""Modules that training scripts import; all of them work without a GPU."""


def main() -> None:
    """Import what training needs and take one real step on the CPU, through a process group of one."""
    if torch.__version__.split("+")[0] != sys.argv[1]:
        sys.exit(f"torch {torch.__version__} is installed, {sys.argv[1]} is locked")
    for name in NEEDED:
        importlib.import_module(name)
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 2))
    fully_shard(model, mesh=distributed.device_mesh.init_device_mesh("cpu", (1,)))
    compiled = torch.compile(model, backend="eager")
    loss = compiled(torch.ones(2, 1, 8, 8)).sum()
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    distributed.destroy_process_group()
    print(f"torch {torch.__version__} works without a GPU")  # noqa: T201 -- a build's log


if __name__ == "__main__":
    main()
