"""A real Ray cluster of several processes on this machine, whose workers are killed.

Everything that needs the cluster is in this file. Each pytest process that runs a part of it starts a cluster of its own, with
its own ports and folder, and ends it.
"""

import fcntl
import os
import shutil
import signal
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import chores
import psutil
import pytest
import torch
from campaigns import CAMPAIGN, RUNS, Killer, comparable, resumed
from runs import checkpoint_step

from mlrsnet_lab import records
from mlrsnet_lab.campaign import run_recipe
from mlrsnet_lab.executors import Begun, Crew, Died, Work
from mlrsnet_lab.executors.on_ray import RayWorkers
from mlrsnet_lab.meta_specs import HorizonSpec
from mlrsnet_lab.meta_training import learn
from mlrsnet_lab.recipes import RECIPES
from mlrsnet_lab.settings import Settings, nobody
from mlrsnet_lab.watch import Watcher

ray = pytest.importorskip("ray")
SPEC = HorizonSpec(
    task_options={"classes": [0, 1, 2]}, generations=3, tasks=4, members=2, hidden=4, held_out=2, together=1
)


def start(folder):
    """Start a cluster. Ray allows 30 s for it, which is little on a busy machine: one at a time, and several tries."""
    settings = {"num_cpus": 4, "object_store_memory": 80 * 2**20, "include_dashboard": False, "_temp_dir": folder}
    with open(Path(tempfile.gettempdir()) / "mlrsnet-test-ray.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for attempt in range(4):
            try:
                ray.init(address="local", log_to_driver=False, logging_level="error", **settings)
                return
            except Exception as error:
                ray.shutdown()
                if attempt == 3 or "timed out during startup" not in str(error):
                    raise


def children():
    return psutil.Process().children(recursive=True)


@pytest.fixture(scope="module")
def cluster():
    """Four worker processes; nothing else is reachable, and nothing is left."""
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # short: paths of sockets have at most 107 characters
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")  # or all clusters of a user share one token, in the home folder
        try:
            others = set(children())  # other tests of this process leave theirs: a logger's service, a pool of workers
            start(folder)
            ours = set(children()) - others
            assert ours
            yield
            ray.shutdown()
            psutil.wait_procs(ours, timeout=120)
            assert not [process for process in ours if process.is_running() and process.status() != "zombie"]
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def workers(cluster):
    made = RayWorkers("cpu")
    assert made.size == 4
    yield made
    made.close()


@pytest.fixture
def campaign(monkeypatch, tmp_path):
    """The folder of an undisturbed campaign."""
    monkeypatch.setitem(RECIPES, "mine", CAMPAIGN)
    run_recipe("mine", "smoke", tmp_path / "alone", Settings(device="cpu", root=tmp_path / "data1"))
    return tmp_path / "alone"


@pytest.mark.nightly
def test_workers_killed_at_random_leave_every_record_once_and_equal_to_an_undisturbed_run(workers, campaign, tmp_path):
    killer, crew = Killer(kills=2), Crew(workers)
    settings = Settings(root=tmp_path / "data2", checkpoint_seconds=0, watch=killer.watch)
    found = run_recipe("mine", "smoke", tmp_path / "killed", settings, crew=crew)
    assert len(killer.killed) == 3
    assert crew.counts.again >= 1
    assert {record.status for record in found} == {"finished"}
    assert len(comparable(tmp_path / "killed")) == RUNS
    assert comparable(tmp_path / "killed") == comparable(campaign)
    assert resumed(tmp_path / "killed")


class Stop(Watcher):
    """Presses Ctrl-C, in the process that gives the work, when it hears of the long run."""

    def __init__(self, planned):
        self.is_long = planned.folder.parent.name == "long"

    def epoch(self, line, losses, lrs):
        if self.is_long and line["epoch"] == 2:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.nightly
def test_after_ctrl_c_the_same_call_goes_on_to_the_same_records(workers, campaign, tmp_path):
    settings, crew = Settings(root=tmp_path / "data2", watch=lambda planned: [Stop(planned)]), Crew(workers)
    with pytest.raises(KeyboardInterrupt):
        run_recipe("mine", "smoke", tmp_path / "stopped", settings, crew=crew)
    folder = tmp_path / "stopped" / "digits" / "long" / "seed0"
    assert records.read(folder).status == "interrupted"
    at = checkpoint_step(folder)
    run_recipe("mine", "smoke", tmp_path / "stopped", replace(settings, watch=nobody), crew=crew)
    assert records.read(folder).data["sessions"][-1]["from_step"] == at > 0
    assert comparable(tmp_path / "stopped") == comparable(campaign)


def kill_one_of_ours(name="ray::Worker.do"):
    """Kill a Ray process of this process's cluster, a worker while it works if nothing else is said."""
    while True:
        for process in children():
            try:
                if process.name().startswith(name):
                    process.kill()
                    return
            except psutil.NoSuchProcess:
                continue


@pytest.mark.nightly
def test_a_generation_has_the_same_bits_with_1_2_and_4_workers_also_if_one_is_killed(workers, tmp_path):
    _, alone = learn(SPEC, tmp_path / "alone", Settings(device="cpu"))
    killer = threading.Thread(target=kill_one_of_ours, daemon=True)

    def after_the_first(trainer):
        if trainer.number == 1:
            killer.start()

    for size in (1, 2, 4):
        workers.limit(size)
        crew = Crew(workers)
        on_generation = after_the_first if size == 2 else None
        _, found = learn(SPEC, tmp_path / str(size), crew=crew, on_generation=on_generation)
        assert torch.equal(found.weights, alone.weights)
        assert torch.equal(found.mean_weights, alone.mean_weights)
        assert found.history == alone.history
        assert found.loss_range == alone.loss_range
        assert [vars(line) for line in found.comparisons] == [vars(line) for line in alone.comparisons]
        assert found.held_out.describe() == alone.held_out.describe()
        if size == 2:
            killer.join(timeout=60)
            assert not killer.is_alive()
            assert crew.counts.again >= 1
    workers.limit(None)


def test_work_is_done_though_nobody_hears_of_it_when_the_mailbox_dies(workers):
    ray.get(workers.mailbox.read.remote())  # it is there
    kill_one_of_ours("ray::Mailbox")
    queue = [Work(str(number), chores.square, (number,)) for number in range(6)]
    found = Crew(workers).run(lambda: queue.pop() if queue else None)
    assert sorted(done.value for done in found) == [0, 1, 4, 9, 16, 25]


def test_work_that_always_kills_its_worker_is_given_up_and_errors_reach_the_caller(workers, tmp_path):
    heard = []
    queue = [Work("a", chores.die, (str(tmp_path), 99)), Work("b", chores.square, (3,))]
    crew = Crew(workers, retries=1)
    take = lambda: queue.pop() if queue else None  # noqa: E731
    found = {done.work.name: done for done in crew.run(take, lambda work, event: heard.append((work.name, event)))}
    assert found["b"].value == 9
    assert "it was tried 2 times, and its process ended:" in str(found["a"].lost)
    assert ("b", "3 on cpu") in heard
    assert {type(event) for name, event in heard if name == "a"} == {Begun, Died}
    queue.append(Work("c", chores.fail, ("of this kind",)))
    with pytest.raises(ValueError, match="of this kind"):
        list(crew.run(take))
