"""Everything the commands decide can be done from Python, on a machine without rich, matplotlib and tensorboard."""

import json
import subprocess
import sys

HIDE = """
import sys
for name in ("rich", "matplotlib", "tensorboard"):
    sys.modules[name] = None
"""
ALL = """
import json
from dataclasses import replace
from pathlib import Path
from mlrsnet_lab import reproduce as module
from mlrsnet_lab.recipes import Cell, Recipe
from mlrsnet_lab.sheets import Grid, nothing
from mlrsnet_lab.reproduce import reproduce
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec

TINY = RunSpec(task_options={"classes": [0, 1]}, model="mlp", model_options={"width": 8}, batch_size=64, epochs=1)

def recipe(name, task, **changes):
    spec = replace(TINY, task=task, **changes)
    return Recipe(name, f"Title of {name}", "Nothing.", lambda scale: [Cell("Fixed", "Column", spec)])

for name, one in {"tiny": recipe("tiny", "digits"), "no-data": recipe("no-data", "ptb", task_options={})}.items():
    module.RECIPES[name] = one
for name in set(module.RECIPES) - {"tiny", "no-data"}:
    del module.RECIPES[name]
sums = ([Grid("Sum", ("n",), [(2.0,)])], [])
module.RECIPES["sums"] = Recipe("sums", "Sums", "1 + 1 = 2.", nothing, measure=lambda scale, seed: sums)

told = []
done = reproduce("all", "smoke", Path("all"), Settings(device="cpu", root=Path("nowhere"), tell=told.append))
print(json.dumps({
    "seeds": [record.spec["seed"] for record in done.records],
    "status": [record.status for record in done.records],
    "failures": done.failures,
    "page": done.page,
    "runs": json.loads(Path("all/all.json").read_text())["runs"],
    "told": told,
    "study": Path("all/sums/study.json").is_file(),
}))
"""
RUNS = """
import json, signal
from pathlib import Path
from mlrsnet_lab.folders import run_folder
from mlrsnet_lab.loop import run
from mlrsnet_lab.overrides import make_spec
from mlrsnet_lab.records import read
from mlrsnet_lab.several import read_below, resume
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.watch import Watcher

class Stop(Watcher):
    def epoch(self, line, losses, lrs):
        signal.raise_signal(signal.SIGINT)

fields = {"epochs": 3, "model": "mlp", "schedule": "cosine"}
Path("spec.json").write_text(json.dumps(fields | {"schedule_options": {"warmup": 0.1}, "task_options": {"classes": [0, 1]}}))
spec = make_spec(Path("spec.json"), {"schedule": "linear", "seed": 4}, [("model", "width", 8)])
folders = [run_folder(make_spec(Path("spec.json"), {"seed": seed}), Path("runs")) for seed in (0, 1)]
for seed, folder in enumerate(folders):
    try:
        run(make_spec(Path("spec.json"), {"seed": seed}), folder, Settings(device="cpu"), watchers=[Stop()])
    except KeyboardInterrupt:
        pass
before = [record.status for record in read_below(Path("runs")).found]
outcome = resume(Path("runs"), Settings(device="cpu"))
outcome.raise_failures()
print(json.dumps({
    "spec": [spec.schedule, spec.schedule_options, spec.seed, spec.epochs, spec.model_options],
    "folders": len(set(folders)),
    "same": run_folder(make_spec(Path("spec.json"), {"seed": 0}), Path("runs")) == folders[0],
    "before": before,
    "after": [read(folder).status for folder in folders],
    "made": len(outcome.records),
}))
"""


def python(code, folder):
    found = subprocess.run([sys.executable, "-c", HIDE + code], cwd=folder, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


def test_all_recipes_can_be_reproduced_from_a_script(tmp_path):
    found = python(ALL, tmp_path)
    assert found["seeds"] == [0]  # one at scale smoke
    assert found["status"] == ["finished"]
    assert found["page"] is None
    assert found["study"]
    assert found["runs"] == 1
    (failure,) = found["failures"]
    assert failure.startswith("no-data: ptb was not found")
    outlook, no_page = found["told"]
    assert outlook.startswith("tiny, scale smoke: 1 trainings on CPU")
    assert no_page.startswith("no report: report needs matplotlib")
    assert no_page.endswith("then `mlrsnet report all` makes it")


def test_specs_folders_and_unfinished_runs_can_be_handled_from_a_script(tmp_path):
    found = python(RUNS, tmp_path)
    assert found["spec"] == ["linear", {}, 4, 3, {"width": 8}]  # the options of another schedule are dropped
    assert found["folders"] == 2
    assert found["same"]
    assert found["before"] == ["interrupted"] * 2
    assert found["after"] == ["finished"] * 2
    assert found["made"] == 2


def test_a_schedule_can_be_learned_from_a_script(tmp_path):
    code = """
import json
from pathlib import Path
from mlrsnet_lab.meta_specs import GreedySpec, HorizonSpec
from mlrsnet_lab.meta_training import learn_greedy, learn_horizon
from mlrsnet_lab.settings import Settings
greedy, record = learn_greedy(GreedySpec(task_options={"classes": [0, 1]}, epochs=1), Path("g.safetensors"), Settings(device="cpu"))
spec = HorizonSpec(task_options={"classes": [0, 1]}, generations=1, tasks=1, members=2, hidden=4, held_out=1)
horizon, path = learn_horizon(spec, Path("h.safetensors"), Settings(device="cpu"))
print(json.dumps([record.status, Path("g.safetensors").is_file(), path.name, sorted(p.name for p in Path(".").iterdir())]))
"""
    status, written, record, files = python(code, tmp_path)
    assert (status, written, record) == ("finished", True, "h.safetensors.json")
    assert files == ["g.safetensors", "h.safetensors", "h.safetensors.json"]
