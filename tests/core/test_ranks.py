"""Two real processes over gloo: every rank sets the LR from the mean loss."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mlrsnet import LearnedLR

WORKER = """
import os, sys, warnings
import torch
import torch.distributed as dist
from mlrsnet import LearnedLR, Schedule

rank, folder, kind, alone = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "alone"
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=torch.tensor(0.1) if kind == "tensor" else 0.1)
options = {"process_group": False} if alone else {}
lr = LearnedLR(optimizer, folder + "/s.safetensors", total_steps=8, num_classes=5, **options)
used = []
warnings.simplefilter("ignore")
for step in range(8):
    loss = torch.tensor(1.7 - 0.1 * step + (0.2 if rank else -0.2))
    if step == 5 and rank == 1:
        loss = torch.tensor(float("nan"))
    lr.observe(loss)
    lr.step(loss)
    lr.step()
    optimizer.step()
    used.append(float(lr.get_last_lr()[0]))
torch.save(torch.tensor(used, dtype=torch.float64), f"{folder}/lrs{rank}.pt")
dist.barrier()
os._exit(0)  # the result is on disk; gloo's threads can abort a normal exit
"""


def run_two(tmp_path, kind, mode):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    workers = [subprocess.Popen([sys.executable, script, str(rank), tmp_path, kind, mode]) for rank in range(2)]
    assert [worker.wait(timeout=180) for worker in workers] == [0, 0]
    return [torch.load(Path(tmp_path) / f"lrs{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.filterwarnings("ignore:a loss was not finite")
@pytest.mark.parametrize("kind", ["float", "tensor"])
def test_every_rank_uses_the_lr_of_the_mean_loss(horizon, tmp_path, kind):
    horizon.save(tmp_path / "s.safetensors")
    first, second = run_two(tmp_path, kind, "together")
    assert torch.equal(first, second)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    lr = LearnedLR(optimizer, horizon, total_steps=8, num_classes=5)
    expected = []
    for step in range(8):
        lr.step(1.7 - 0.1 * step if step != 5 else math.nan)  # not finite on one rank: both keep the LR
        optimizer.step()
        expected.append(lr.get_last_lr()[0])
    torch.testing.assert_close(first, torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=1e-9)


def test_ranks_can_train_on_their_own(horizon, tmp_path):
    horizon.save(tmp_path / "s.safetensors")
    first, second = run_two(tmp_path, "float", "alone")
    assert not torch.isclose(first, second).any()


SUBGROUP = """
import os, sys
import torch
import torch.distributed as dist
from mlrsnet.ranks import average_over_ranks, share_from_first

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=3)
group = dist.new_group([1, 2])
if rank:
    mean, shared = average_over_ranks(0.1 * rank, group), torch.full((2,), float(rank))
    share_from_first(shared, group)
    torch.save([mean, shared], f"{folder}/found{rank}.pt")
dist.barrier()
os._exit(0)
"""


@pytest.fixture(scope="module")
def subgroup(tmp_path_factory):
    """What ranks 1 and 2 of three get: a mean of Python floats, and a tensor from the first rank of the group."""
    folder = tmp_path_factory.mktemp("subgroup")
    (folder / "worker.py").write_text(SUBGROUP)
    workers = [subprocess.Popen([sys.executable, folder / "worker.py", str(rank), folder]) for rank in range(3)]
    assert [worker.wait(timeout=180) for worker in workers] == [0, 0, 0]
    return [torch.load(folder / f"found{rank}.pt", weights_only=True) for rank in (1, 2)]


def test_python_numbers_are_averaged_in_double_precision(subgroup):
    assert [mean.item() for mean, _ in subgroup] == [(0.1 + 0.2) / 2] * 2


def test_a_group_without_rank_0_shares_from_its_own_first(subgroup):
    assert [shared.tolist() for _, shared in subgroup] == [[1.0, 1.0]] * 2
