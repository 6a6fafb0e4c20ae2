"""Two processes over gloo, in real frameworks: all of them in one launch. Run as a script, this file is one rank of it."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from cases import NETWORKS
from hand_loops import Batches, batch_loss, by_hand, momentum, new_net, record, weights
from torch.utils.data import DataLoader

from mlrsnet import LearnedLR


def examples():
    """Of all batches, one by one: each of two processes gets every second half of a batch."""
    data = Batches(8)
    return list(zip(data.inputs.flatten(0, 1), data.labels.flatten(), strict=True))


def schedule(name):
    torch.manual_seed(1)
    return NETWORKS["paper"]() if name == "paper" else name


def accelerate(name, accumulate, resume_at=None, folder=None, **loading):
    """A training as in Accelerate's guide: every process steps the prepared scheduler, and the user's own loop as well."""
    from accelerate import Accelerator, DataLoaderConfiguration

    config = DataLoaderConfiguration(**loading)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate, dataloader_config=config)
    net, used = new_net(), []
    optimizer = momentum(net)
    net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(examples(), 16 if loading else 8))
    lr = LearnedLR(optimizer, schedule(name), total_steps=2 * -(-len(loader) // accumulate), num_classes=5)
    record(optimizer.optimizer, used)
    scheduler = accelerator.prepare(lr)
    if resume_at is not None:
        accelerator.load_state(folder)
    for epoch in range(2):
        if epoch == 1 and resume_at is None and folder is not None:
            accelerator.save_state(folder)
        for batch in loader if epoch >= (resume_at or 0) else ():
            with accelerator.accumulate(net):
                loss = batch_loss(net, batch)
                accelerator.backward(loss)
                lr.observe(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
    return {"used": used, "weights": weights(net), "steps": lr.status()["step"], "total": lr.total_steps}


def transformers(folder, make, accumulate):
    """A Trainer that makes the schedule by its name and tells it the losses."""
    from trainer_fits import Watch, classifier, labelled, logged, settings, texts, writer
    from transformers import Trainer

    from mlrsnet.integrations.transformers import register

    register()
    model, data = (writer(), texts(32)) if make == "writer" else (classifier(accepts_loss_kwargs=False), labelled(32))
    changes = {"ddp_backend": "gloo", "gradient_accumulation_steps": accumulate, "lr_scheduler_type": "learned"}
    kwargs = {"schedule": schedule("paper"), "num_classes": 5}
    arguments = settings(folder, **changes, lr_scheduler_kwargs=kwargs)
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[watch := Watch()])
    trainer.train()
    lr, losses = trainer.lr_scheduler, logged(trainer, "loss")
    steps = {"used": watch.lrs, "steps": lr.status()["step"], "total": lr.total_steps}
    return {"weights": weights(trainer.model), "losses": losses, **steps}


def lightning():
    """The halves of the batches under DDP: as a scheduler, and meta-training."""
    from lightning_fits import Module, Tells, fit
    from test_lightning_meta import meta_callback

    class Halves(Batches):
        def __iter__(self):
            rank = torch.distributed.get_rank()
            return ((x[8 * rank :][:8], y[8 * rank :][:8]) for x, y in super().__iter__())

    module, meta, callback = Tells(schedule("paper"), num_classes=5, total_steps=16), Module(), meta_callback()
    callback.batches.batches = Halves(4, seed=3)
    options = {"strategy": "ddp", "devices": 2, "max_epochs": 2}
    fit(module, data=Halves(8), **options)
    lr = module.lr_schedulers()
    fit(meta, [callback], Halves(), **options)
    learned = {"used": module.used, "weights": weights(module.net), "steps": lr.status()["step"], "total": 16}
    net = {"net": weights(callback.meta.net), "updates": callback.meta.num_updates}
    return {"lightning": learned, "meta": {"used": meta.used, "weights": weights(meta.net), **net}}


def work(folder):
    """What each of the two processes does."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = {
        "accelerate": accelerate("universal", 1),
        "accelerate by 4": accelerate("universal", 4),
        "accelerate network by 2": accelerate("paper", 2, folder=folder / "half"),
        "accelerate resumed": accelerate("paper", 2, resume_at=1, folder=folder / "half"),
        "accelerate split": accelerate("paper", 1, split_batches=True),
        "transformers words": transformers(folder, "writer", 2),
        "transformers classes": transformers(folder, "classifier", 1),
        **lightning(),
    }
    torch.save(found, folder / f"rank{os.environ['RANK']}.pt")
    torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)  # the result is on disk; gloo's threads can abort a normal exit


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What both processes found."""
    folder = tmp_path_factory.mktemp("two")
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        __file__,
        str(folder),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(launch, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(2)]


LEARNED = ("accelerate", "accelerate by 4", "accelerate network by 2", "accelerate split", "transformers words",
           "transformers classes", "lightning")  # fmt: skip


@pytest.mark.parametrize("name", LEARNED)
def test_two_processes_take_the_same_steps_and_end_together(ranks, name):
    first, second = (found[name] for found in ranks)
    assert first["steps"] == first["total"] == second["steps"] == len(first["used"])
    assert first["used"] == second["used"]
    assert torch.equal(first["weights"], second["weights"])


@pytest.mark.parametrize(
    ("name", "schedule_name", "accumulate"),
    [
        ("accelerate", "universal", 1),
        ("accelerate by 4", "universal", 4),
        ("accelerate network by 2", "paper", 2),
        ("accelerate split", "paper", 1),
        ("lightning", "paper", 1),
    ],
)
def test_two_processes_train_as_one_with_batches_twice_as_long(ranks, name, schedule_name, accumulate):
    options = {"accumulate": accumulate, "epochs": 2, "data": Batches(8), "tells": True, "num_classes": 5}
    net, used, _ = by_hand(schedule(schedule_name), **options)
    torch.testing.assert_close(ranks[0][name]["used"], used, rtol=1e-3, atol=0)
    torch.testing.assert_close(ranks[0][name]["weights"], weights(net), rtol=1e-3, atol=1e-4)


def test_two_processes_resume_bit_for_bit(ranks):
    for found in ranks:
        assert found["accelerate resumed"]["used"] == found["accelerate network by 2"]["used"][4:]
        assert torch.equal(found["accelerate resumed"]["weights"], found["accelerate network by 2"]["weights"])


@pytest.mark.parametrize("name", ["transformers words", "transformers classes"])
def test_a_network_reads_the_loss_that_the_trainer_logs_for_both_processes(ranks, name):
    first, lrs = ranks[0][name], []
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    optimizer = torch.optim.AdamW([weight])
    lr = LearnedLR(optimizer, schedule("paper"), total_steps=len(first["used"]), num_classes=5)
    for loss in first["losses"]:
        lr.step(loss)
        optimizer.step()
        lrs += lr.get_last_lr()
    torch.testing.assert_close([used for used, *_ in first["used"]], lrs, rtol=1e-4, atol=0)


def test_two_processes_learn_one_network(ranks):
    from test_lightning_meta import meta_by_hand

    first, second = (found["meta"] for found in ranks)
    assert first["used"] == second["used"]
    assert torch.equal(first["net"], second["net"])
    assert torch.equal(first["weights"], second["weights"])
    _, used, meta = meta_by_hand(epochs=2)  # equal halves: their mean gradient is the whole batch's
    assert first["updates"] == meta.num_updates
    torch.testing.assert_close(first["used"], used, rtol=1e-4, atol=0)
    torch.testing.assert_close(first["net"], weights(meta.net), rtol=0, atol=1e-5)


if __name__ == "__main__":
    work(Path(sys.argv[1]))
