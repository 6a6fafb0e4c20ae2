"""Meta-training in two real processes over gloo: networks identical on every rank, equal to one process on all the data."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

WORKER = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from mlrsnet import MetaTrainer
from mlrsnet.meta import Learning
from mlrsnet.nets import LSTMNet

mode, rank, ranks, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
if ranks > 1:
    dist.init_process_group("gloo", init_method=f"file://{folder}/{mode}.store", rank=rank, world_size=ranks)
generator = torch.Generator().manual_seed(0)
x = torch.randn(40, 16, 6, generator=generator)
y = x[..., :4].argmax(-1)
part = slice(rank * 16 // ranks, (rank + 1) * 16 // ranks)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
torch.manual_seed(rank)  # every rank draws a different network; rank 0's is used
net = LSTMNet(8)
if mode == "ddp" and ranks > 1:
    model = nn.parallel.DistributedDataParallel(model)
if mode == "fsdp":
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in (model[0], model[2], model[4], model):
        fully_shard(layer, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
batches = iter(range(39, 0, -1))

def val_loss():
    index = next(batches)
    return cross_entropy(model(x[index, part]), y[index, part])

meta = MetaTrainer(model, optimizer, total_steps=12, val_loss=val_loss, net=net, num_classes=4, learning=Learning(every=2))
lrs, slopes = [], []
for step in range(12):
    loss = cross_entropy(model(x[step, part]), y[step, part])
    optimizer.zero_grad()
    loss.backward()
    meta.step(loss)
    lrs.append(optimizer.param_groups[0]["lr"])
    slopes.append(meta.last_hypergradient)
weights = [p.detach() for p in model.parameters()]
weights = [w.full_tensor() if hasattr(w, "full_tensor") else w for w in weights]
result = {
    "net": torch.cat([p.detach().reshape(-1) for p in net.parameters()]),
    "model": torch.cat([w.reshape(-1) for w in weights]),
    "lrs": torch.tensor(lrs, dtype=torch.float64),
    "slopes": torch.tensor(slopes, dtype=torch.float64),
}
torch.save(result, f"{folder}/{mode}{ranks}-{rank}.pt")
if ranks > 1:
    dist.barrier()
os._exit(0)  # the result is on disk; gloo's threads can abort a normal exit
"""


def run(tmp_path, mode, ranks):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    commands = [[sys.executable, script, mode, str(rank), str(ranks), tmp_path] for rank in range(ranks)]
    workers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    try:
        for worker in workers:
            _, errors = worker.communicate(timeout=240)
            assert worker.returncode == 0, errors[-2000:]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    return [torch.load(Path(tmp_path) / f"{mode}{ranks}-{rank}.pt", weights_only=True) for rank in range(ranks)]


LOWEST_FSDP = "2.10"
"""In older versions, fully_shard over gloo sums gradients instead of averaging them (2.7, 2.8) or does not run on CPUs (2.6)."""


@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_two_ranks_learn_what_one_process_does(tmp_path, mode):
    if mode == "fsdp" and torch.torch_version.TorchVersion(torch.__version__) < LOWEST_FSDP:
        pytest.skip(f"fully_shard on CPUs is right from torch {LOWEST_FSDP} on")
    first, second = run(tmp_path, mode, 2)
    (alone,) = run(tmp_path, "plain", 1)
    assert torch.equal(first["net"], second["net"])
    assert torch.equal(first["lrs"], second["lrs"])
    assert torch.equal(first["slopes"], second["slopes"])
    for key in ("net", "model", "lrs", "slopes"):
        torch.testing.assert_close(
            first[key], alone[key], rtol=1e-3, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}"
        )
