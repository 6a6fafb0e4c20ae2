"""Weights spread over two real processes: every rank has the LRs of one process with all the data."""

import subprocess
import sys

import pytest
import torch
from test_metatrain_distributed import LOWEST_FSDP

WORKER = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.distributed.device_mesh import init_device_mesh
from mlrsnet import LearnedLR

kind, name, lr_kind, rank, ranks, folder = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6]
dist.init_process_group("gloo", init_method=f"file://{folder}/{kind}.store", rank=rank, world_size=ranks)
random = torch.Generator().manual_seed(0)
x = torch.randn(10, 16, 5, generator=random, dtype=torch.float64)
y = torch.randint(3, (10, 16), generator=random)
part = slice(rank * 16 // ranks, (rank + 1) * 16 // ranks)
torch.manual_seed(1)
# 7 rows do not divide by 2, and of 1 row the second process has nothing
model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1), nn.Tanh(), nn.Linear(1, 3)).double()
if kind == "fsdp":
    from torch.distributed.fsdp import fully_shard
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
elif kind == "hsdp":
    from torch.distributed.fsdp import fully_shard
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks, 1), mesh_dim_names=("copies", "parts")))
elif kind == "fsdp, one layer":
    from torch.distributed.fsdp import fully_shard
    fully_shard(model[0], mesh=init_device_mesh("cpu", (ranks,)))
options = {"momentum": 0.9} if name == "SGD" else {}
lr = torch.tensor(0.1) if lr_kind == "tensor" else 0.1
optimizer = getattr(torch.optim, name)(model.parameters(), lr=lr, foreach=False, **options)
learned = LearnedLR(optimizer, total_steps=10)
used = []
for step in range(10):
    optimizer.zero_grad()
    loss = cross_entropy(model(x[step, part]), y[step, part])
    loss.backward()
    if kind == "fsdp, one layer":  # what fully_shard does for its own
        for layer in (model[2], model[4]):
            for weight in layer.parameters():
                dist.all_reduce(weight.grad)
                weight.grad /= ranks
    learned.step(loss)
    optimizer.step()
    used.append(float(learned.get_last_lr()[0]))
torch.save(torch.tensor(used, dtype=torch.float64), f"{folder}/{kind}{rank}.pt")
dist.barrier()
os._exit(0)  # the result is on disk; gloo's threads can abort a normal exit
"""


def run(folder, kind, name, lr_kind, ranks):
    script = folder / "worker.py"
    script.write_text(WORKER)
    words = [sys.executable, script, kind, name, lr_kind]
    workers = [subprocess.Popen([*words, str(rank), str(ranks), folder]) for rank in range(ranks)]
    assert [worker.wait(timeout=180) for worker in workers] == [0] * ranks
    return [torch.load(folder / f"{kind}{rank}.pt", weights_only=True) for rank in range(ranks)]


@pytest.mark.skipif(
    torch.torch_version.TorchVersion(torch.__version__) < LOWEST_FSDP,
    reason=f"fully_shard on CPUs is right from torch {LOWEST_FSDP} on",
)
@pytest.mark.parametrize(
    ("kind", "name", "lr_kind"),
    [
        ("fsdp", "SGD", "float"),
        ("fsdp", "AdamW", "float"),
        ("fsdp", "AdamW", "tensor"),
        ("hsdp", "AdamW", "float"),
        ("fsdp, one layer", "SGD", "float"),
    ],
)
def test_sharded_weights_get_the_lrs_of_whole_ones(kind, name, lr_kind, tmp_path):
    (expected,) = run(tmp_path, "whole", name, lr_kind, 1)
    first, second = run(tmp_path, kind, name, lr_kind, 2)
    assert torch.equal(first, second)
    torch.testing.assert_close(first, expected, rtol=1e-4 if lr_kind == "tensor" else 1e-9, atol=0)


EXPERTS = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from mlrsnet import LearnedLR

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}/store", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
first, second = (nn.Parameter(distribute_tensor(torch.randn(6, 5), mesh, [Shard(0)])) for _ in range(2))
optimizer = torch.optim.AdamW([first, second], foreach=False)
LearnedLR(optimizer, total_steps=8)
for step in range(8):
    first.grad = DTensor.from_local(torch.randn(3, 5), mesh, [Shard(0)])
    second.grad = None if rank and step % 3 else DTensor.from_local(torch.randn(3, 5), mesh, [Shard(0)])
    optimizer.step()
    print(optimizer.param_groups[0]["lr"], flush=True)
os._exit(0)
"""


def test_a_process_whose_part_got_no_gradient_keeps_none_waiting(tmp_path):
    """An expert that no token of a process went to: sums over processes have a place for it all the same."""
    ranks = [
        subprocess.Popen([sys.executable, "-c", EXPERTS, str(rank), tmp_path], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    first, second = (rank.communicate(timeout=120)[0].split() for rank in ranks)
    assert first == second
    assert len(first) == 8


ADAPTERS = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from mlrsnet.facts import read_facts

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}/store", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
down, up = torch.zeros(8, 40), torch.zeros(40, 8)
down[:4] = 1.0  # the second process has zeros only
downs, ups = ([nn.Parameter(distribute_tensor(one, mesh, [Shard(0)])) for _ in range(6)] for one in (down, up))
print(read_facts(downs + ups).depth, read_facts(downs).depth, flush=True)
os._exit(0)
"""


def test_sharded_adapters_are_not_taken_for_a_deep_network(tmp_path):
    ranks = [
        subprocess.Popen([sys.executable, "-c", ADAPTERS, str(rank), tmp_path], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    assert [rank.communicate(timeout=120)[0].split() for rank in ranks] == [["1", "6"]] * 2


FLAT = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from mlrsnet import LearnedLR

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
for original in (False, True):
    model = FullyShardedDataParallel(nn.Linear(4, 2), device_id=torch.device("cpu"), use_orig_params=original)
    try:
        LearnedLR(torch.optim.SGD(model.parameters(), lr=0.1), total_steps=5)
    except ValueError as error:
        print(error, flush=True)
os._exit(0)
"""


def test_flat_weights_of_fsdp1_are_refused_with_what_works_instead(tmp_path):
    found = subprocess.run([sys.executable, "-c", FLAT, tmp_path], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr[-2000:]
    message = (
        "optimizer must have weights of their own shapes, got flat ones, as those of FSDP1 and DeepSpeed's ZeRO, in which matrices "
        "cannot be told apart: use FSDP2 (torch.distributed.fsdp.fully_shard)"
    )
    assert found.stdout.splitlines() == [message, message]


STAGE = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
from mlrsnet import LearnedLR

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}/store", rank=rank, world_size=2)
model = nn.Linear(5, 5) if rank else nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 3))
optimizer = torch.optim.AdamW(model.parameters())
lr = LearnedLR(optimizer, total_steps=6)
for _ in range(6 if rank else 4):
    optimizer.zero_grad()
    model(torch.ones(2, 5)).square().sum().backward()
    optimizer.step()
print(lr.last_epoch, flush=True)
os._exit(0)
"""


def test_stages_of_a_pipeline_measure_themselves(tmp_path):
    """Each has other weights, and steps when it likes: a stage that waited for another would hang."""
    stages = [
        subprocess.Popen([sys.executable, "-c", STAGE, str(rank), tmp_path], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    assert [stage.communicate(timeout=120)[0].strip() for stage in stages] == ["4", "6"]
