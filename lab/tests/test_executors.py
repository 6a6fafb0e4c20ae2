"""Work that other processes do: every piece once, whatever happens to the processes."""

import os
import signal
import sys

import chores
import pytest
from campaigns import CAMPAIGN, RUNS, comparable
from commands import complaint

from mlrsnet_lab.campaign import run_recipe
from mlrsnet_lab.executors import Begun, Counts, Crew, Died, Executor, Work
from mlrsnet_lab.executors.executor import local_devices
from mlrsnet_lab.executors.local import LocalWorkers
from mlrsnet_lab.executors.on_ray import _device, _room
from mlrsnet_lab.recipes import RECIPES
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.watch import Watcher


@pytest.fixture(scope="module")
def processes():
    workers = LocalWorkers(["cpu", "cpu"], threads=1)
    yield workers
    workers.close()


def given(*works):
    left = list(works)
    return lambda: left.pop(0) if left else None


def test_every_piece_of_work_comes_back_once_and_what_it_tells_is_heard(processes):
    heard, counts = [], []
    works = [Work(str(n), chores.square, (n,)) for n in range(5)]
    crew = Crew(processes, on_change=counts.append)
    found = list(crew.run(given(*works), lambda work, event: heard.append((work.name, event))))
    assert sorted(done.value for done in found) == [0, 1, 4, 9, 16]
    assert sorted(pair for pair in heard if not isinstance(pair[1], Begun)) == [
        (str(n), f"{n} on cpu") for n in range(5)
    ]
    assert counts[-1] == Counts(running=0, done=5, again=0)


def test_work_that_becomes_ready_later_is_done_too(processes):
    queue, found = [Work("0", chores.square, (2,))], []
    for done in Crew(processes).run(lambda: queue.pop() if queue else None):
        found.append(done.value)
        if done.value < 100:
            queue.append(Work(str(done.value), chores.square, (done.value,)))
    assert found == [4, 16, 256]


def test_an_error_of_the_work_reaches_the_caller_as_it_is(processes):
    with pytest.raises(ValueError, match="of this kind"):
        list(Crew(processes).run(given(Work("a", chores.fail, ("of this kind",), polite=True))))
    assert [done.value for done in Crew(processes).run(given(Work("b", chores.square, (3,))))] == [9]


def test_work_whose_process_dies_is_given_again(processes, tmp_path):
    heard = []
    crew = Crew(processes, retries=2)
    (done,) = crew.run(given(Work("a", chores.die, (tmp_path, 2))), lambda work, event: heard.append(type(event)))
    assert (done.value, done.lost) == (2, None)
    assert heard.count(Died) == 2
    assert crew.counts == Counts(running=0, done=1, again=2)


def test_work_that_always_kills_its_process_is_given_up_and_the_rest_is_done(processes, tmp_path):
    works = Work("a", chores.die, (tmp_path, 99)), Work("b", chores.square, (3,))
    found = {done.work.name: done for done in Crew(processes, retries=1).run(given(*works))}
    assert found["b"].value == 9
    assert str(found["a"].lost) == "it was tried 2 times, and its process ended: signal 9"
    assert len(list(tmp_path.iterdir())) == 2


def test_an_error_that_may_pass_is_tried_again(processes):
    work = Work("a", chores.fail, ("in use",), again=(ValueError,))
    (done,) = Crew(processes, retries=1).run(given(work))
    assert str(done.lost) == "it was tried 2 times, and its process ended: ValueError: in use"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_lets_a_training_stop_at_a_steps_end_and_breaks_off_the_rest(processes, tmp_path, number):
    begun, pressed = set(), []

    def hear(work, event):
        begun.add(work.name)
        if len(begun) == 2 and isinstance(event, int) and event >= 5 and not pressed:
            pressed.append(event)
            os.kill(os.getpid(), number)

    works = Work("a", chores.steps, (tmp_path,), polite=True), Work("b", chores.wait_for_ever)
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        list(Crew(processes).run(given(*works), hear))
    assert int((tmp_path / "stopped").read_text()) >= pressed[0]
    assert not processes.children
    assert signal.getsignal(number) == before


def test_a_campaign_in_two_processes_leaves_the_records_of_one(monkeypatch, tmp_path, processes):
    monkeypatch.setitem(RECIPES, "mine", CAMPAIGN)
    alone = run_recipe("mine", "smoke", tmp_path / "one", Settings(device="cpu", root=tmp_path / "data1"))
    crew = Crew(processes)
    found = run_recipe("mine", "smoke", tmp_path / "two", Settings(root=tmp_path / "data2"), crew=crew)
    assert [record.folder.relative_to(tmp_path / "two") for record in found] == [
        record.folder.relative_to(tmp_path / "one") for record in alone
    ]
    assert len(comparable(tmp_path / "two")) == RUNS
    assert comparable(tmp_path / "two") == comparable(tmp_path / "one")
    assert len(list((tmp_path / "data2" / "starts").iterdir())) == 1
    assert crew.counts.done == RUNS + 1  # the weights that two runs start from are made once


class Caller(Watcher):
    """Who called it."""

    name = ""

    def epoch(self, line, losses, lrs):
        self.name = sys._getframe(1).f_code.co_qualname


def test_a_run_in_this_process_calls_its_watchers_itself(monkeypatch, tmp_path):
    caller = Caller()
    monkeypatch.setitem(RECIPES, "mine", CAMPAIGN)
    settings = Settings(device="cpu", watch=lambda planned: [caller])
    run_recipe("mine", "smoke", tmp_path, settings, only=["Learns"])
    assert caller.name == "Loop._end_epoch"


def test_local_runs_are_packed_on_the_devices_there_are(monkeypatch):
    assert local_devices("cpu", None) == ["cpu"]
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    assert local_devices("auto", None) == ["cuda:0", "cuda:1"]
    assert local_devices("cuda", 3) == ["cuda:0", "cuda:1", "cuda:0"]
    assert local_devices("cuda:1", None) == ["cuda:1"]
    assert local_devices("cpu", 2) == ["cpu", "cpu"]


def test_ray_workers_get_what_fits_on_the_cluster():
    room = {"CPU": 8.0, "GPU": 2.0}
    assert (_device("auto", room), _device("auto", {"CPU": 8.0}), _device("cpu", room)) == ("cuda", "cpu", "cpu")
    assert (_room(room, 1, 1), _room(room, 1, 0.25), _room(room, 4, 0.25), _room(room, 1, 0)) == (2, 8, 2, 8)
    with pytest.raises(
        ValueError, match="a worker needs 1 cores and 3 GPUs, the Ray cluster has 8 and 2: ask for less"
    ):
        _room(room, 1, 3)
    with pytest.raises(ValueError, match="device cuda needs a GPU, and the Ray cluster has none"):
        _device("cuda", {"CPU": 8.0})
    with pytest.raises(ValueError, match="device must be auto, cpu or cuda with --executor ray, got 'cuda:1'"):
        _device("cuda:1", room)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "slurm"}, "--executor must be one of local, ray; got 'slurm'"),
        ({"jobs": 0}, "--jobs must be a whole number >= 1, got 0"),
        ({"retries": -1}, "--retries must be a whole number >= 0, got -1"),
        ({"address": "auto"}, "--address belongs to --executor ray, got --executor local: leave one out"),
        ({"name": "ray", "gpus": -1.0}, "--gpus must be >= 0, got -1.0"),
    ],
)
def test_a_mistaken_executor_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        Executor(**options)


@pytest.mark.usefixtures("own_folder")
def test_commands_name_a_mistaken_executor(capsys):
    assert "--gpus belongs to --executor ray" in complaint(capsys, "reproduce", "table1", "--gpus", 1)
    assert "--executor must be one of" in complaint(capsys, "reproduce", "table1", "--executor", "x")
    assert "belong to --objective horizon" in complaint(capsys, "metatrain", "--executor", "ray")


def test_without_ray_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ImportError, match=r"--executor ray needs ray, which is not installed: pip install 'mlrsnet-lab\[ray\]'"
    ):
        Executor("ray").crew("cpu").__enter__()
