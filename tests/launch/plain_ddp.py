"""A training script as people have it: PyTorch and the environment, nothing of rankzero's.

plain_ddp.py FOLDER [--local-rank=N]    each rank leaves FOLDER/rank-N.json
"""

import argparse
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--local-rank", type=int, default=-1)
parser.add_argument("folder", type=Path)
options = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.rand(8, 4)).sum().backward()
    optimizer.step()
found = {
    "arguments": sys.argv[1:],
    "local_rank_argument": options.local_rank,
    "local_rank": os.environ.get("LOCAL_RANK"),
    "world_size": dist.get_world_size(),
    "weights": model.module.weight.tolist(),
}
(options.folder / f"rank-{dist.get_rank()}.json").write_text(json.dumps(found))
print(f"rank {dist.get_rank()} of {dist.get_world_size()} has trained", flush=True)
dist.destroy_process_group()
