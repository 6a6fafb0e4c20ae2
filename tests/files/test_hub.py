"""The Hub: its real client, over real HTTP, against a small server in this process."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from huggingface_hub import constants

from mlrsnet import LearnedLR, Schedule
from mlrsnet.card import Card, facts
from mlrsnet.files import hub
from mlrsnet.files.storage import ScheduleError
from mlrsnet.nets import LSTMNet
from mlrsnet.ranges import Fixed

RESULTS = {"digits": {"accuracy": 97.5}, "patches": 0.72}
CARD = Card(
    name="mine",
    description="Learned | on\nweekends.",
    learned_on="digits | 0-4",
    optimizer="SGD(momentum=0.9)",
    total_steps=300,
    gamma=Fixed(0.5),
    loss_range=(0.01, 2.5),
    results=RESULTS,
)


class Hub(ThreadingHTTPServer):
    """Repositories in memory: every commit with all its files. Unlike on the real Hub, files are uploaded inside commits."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.repositories: dict[str, list[tuple[str, dict[str, bytes]]]] = {}
        self.requests, self.refuses = [], False
        self.url = f"http://127.0.0.1:{self.server_port}"

    def add(self, repository, files):
        commits = self.repositories.setdefault(repository, [])
        before = commits[-1][1] if commits else {}
        commits.append((hashlib.sha1(repr((len(commits), files)).encode()).hexdigest(), {**before, **files}))
        return commits[-1][0]


class Answer(BaseHTTPRequestHandler):
    """The few requests that the client makes for a push and a download."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append(("POST", self.path, self.headers.get("Authorization")))
        if self.server.refuses:
            self.reply(403, {"error": "no write access"})
        elif self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            exists = name in self.server.repositories
            self.server.repositories.setdefault(name, [])
            self.reply(409 if exists else 200, {"url": f"{self.server.url}/{name}"})
        elif self.path == "/api/validate-yaml":
            self.reply(200, {"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            modes = [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]
            self.reply(200, {"files": modes})
        elif found := re.fullmatch(r"/api/models/(\w+/\w+)/commit/main", self.path):
            lines = [json.loads(line)["value"] for line in body.splitlines() if json.loads(line)["key"] == "file"]
            commit = self.server.add(found[1], {line["path"]: base64.b64decode(line["content"]) for line in lines})
            self.reply(200, {"commitUrl": f"{self.server.url}/{found[1]}/commit/{commit}", "commitOid": commit})

    def do_GET(self):
        self.server.requests.append((self.command, self.path, self.headers.get("Authorization")))
        owner, name, _, revision, path = [*self.path.strip("/").split("/", 4), "", ""][:5]
        commits = self.server.repositories.get(f"{owner}/{name}")
        if not commits:
            return self.reply(404, {}, {"X-Error-Code": "RepoNotFound"})
        commit = commits[-1] if revision == "main" else next((c for c in commits if c[0] == revision), None)
        if commit is None:
            return self.reply(404, {}, {"X-Error-Code": "RevisionNotFound"})
        if path not in commit[1]:
            return self.reply(404, {}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit[0]})
        content = commit[1][path]
        return self.reply(200, content, {"X-Repo-Commit": commit[0], "ETag": f'"{hashlib.sha1(content).hexdigest()}"'})

    do_HEAD = do_GET  # noqa: N815 (the base class looks for this name)

    def reply(self, status, content, headers=()):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **dict(headers)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *words):
        pass


@pytest.fixture
def server(monkeypatch, tmp_path):
    with Hub() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        for name, value in (
            ("ENDPOINT", running.url),
            ("HUGGINGFACE_CO_URL_TEMPLATE", running.url + "/{repo_id}/resolve/{revision}/{filename}"),
            ("HF_HUB_CACHE", str(tmp_path / "cache")),
            ("HF_TOKEN_PATH", str(tmp_path / "no-token")),
            ("HF_HUB_OFFLINE", False),
        ):
            monkeypatch.setattr(constants, name, value)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def mine():
    torch.manual_seed(0)
    return Schedule([LSTMNet(4), LSTMNet(4)], CARD)


def front_matter(text):
    return text.split("---\n")[1].splitlines()


def test_what_was_pushed_is_what_is_loaded(server, mine):
    address = mine.push_to_hub("me/mine", license="mit", token="hf_secret")
    files = server.repositories["me/mine"][-1][1]
    assert sorted(files) == ["README.md", "schedule.safetensors"]
    assert files["README.md"].decode() == mine.model_card("me/mine", license="mit")
    loaded = Schedule.load("hf://me/mine")
    assert loaded.fingerprint() == mine.fingerprint()
    assert loaded.card == CARD
    assert Schedule.load(address).fingerprint() == mine.fingerprint()
    assert {authorization for kind, _, authorization in server.requests if kind == "POST"} == {"Bearer hf_secret"}


def test_a_second_push_keeps_the_first_ones_address_valid(server, mine):
    first = mine.push_to_hub("me/mine", token="x")
    other = Schedule(LSTMNet(5), CARD)
    second = other.push_to_hub("me/mine", token="x", message="Better")
    assert first != second
    assert Schedule.load(first).fingerprint() == mine.fingerprint()
    assert Schedule.load("hf://me/mine").fingerprint() == Schedule.load(second).fingerprint() == other.fingerprint()


def test_a_training_takes_its_schedule_from_the_hub(server, mine):
    mine.push_to_hub("me/mine", token="x")
    used = []
    for schedule in ("hf://me/mine", mine):
        lr = LearnedLR(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), schedule, total_steps=4)
        lr.step(1.3)
        used.append(lr.get_last_lr())
    assert used[0] == used[1]


def test_the_command_line_shows_a_shared_schedule(server, mine, tmp_path):
    mine.push_to_hub("me/mine", token="x")
    environment = {**os.environ, "HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-m", "mlrsnet.cli", "schedules", "show"]
    shown = subprocess.run([*command, "hf://me/mine"], env=environment, capture_output=True, text=True, timeout=120)
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"^name +mine$", shown.stdout, flags=re.MULTILINE)
    assert mine.fingerprint()[:16] in shown.stdout
    missing = subprocess.run([*command, "hf://me/nope"], env=environment, capture_output=True, text=True, timeout=120)
    assert missing.returncode == 2
    assert "there is no repository hf://me/nope on the Hub" in missing.stderr


def test_a_schedule_loaded_once_loads_without_a_network(server, mine, monkeypatch):
    mine.push_to_hub("me/mine", token="x")
    Schedule.load("hf://me/mine")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    asked = len(server.requests)
    assert Schedule.load("hf://me/mine").fingerprint() == mine.fingerprint()
    assert len(server.requests) == asked


def test_without_a_network_the_error_says_so(server, mine, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConnectionError, match=r"hf://me/mine: the Hub could not be reached .*HF_HUB_OFFLINE"):
        Schedule.load("hf://me/mine")
    with pytest.raises(ConnectionError, match=r"hf://me/mine: the Hub could not be reached"):
        mine.push_to_hub("me/mine", token="x")


def test_a_push_to_a_server_that_is_gone_says_so(mine, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(ConnectionError, match=r"hf://me/mine: the Hub could not be reached"):
        mine.push_to_hub("me/mine", token="x")


def test_each_thing_that_may_be_missing_is_named(server, mine):
    mine.push_to_hub("me/mine", token="x")
    server.add("me/other", {"model.safetensors": b"", "README.md": b""})
    for address, message in {
        "hf://me/nope": "there is no repository hf://me/nope on the Hub, or it is private: .* `hf auth login`",
        "hf://me/other": "hf://me/other has no file schedule.safetensors",
        f"hf://me/mine@{'0' * 40}": "has no such revision: pass a branch",
    }.items():
        with pytest.raises(ScheduleError, match=message):
            Schedule.load(address)


def test_a_push_without_the_right_to_write_says_how_to_get_it(server, mine):
    server.refuses = True
    with pytest.raises(PermissionError, match=r"the Hub refused hf://me/mine .*`hf auth login`"):
        mine.push_to_hub("me/mine", token="x")


@pytest.mark.parametrize("name", ["mine", "hf://mine", "a/b/c", "/mine", "me/", "me/mine space", "../mine", ""])
def test_a_name_that_is_not_owner_and_name_is_refused_before_anything_is_sent(server, mine, name):
    with pytest.raises(ValueError, match="must be owner/name, got"):
        mine.push_to_hub(name)
    with pytest.raises(ValueError, match="must be owner/name, got"):
        Schedule.load(f"hf://{name}")
    assert not server.requests


def test_an_empty_revision_is_refused():
    with pytest.raises(ValueError, match="must name a revision after '@', got 'hf://me/mine@'"):
        Schedule.load("hf://me/mine@")


def test_a_file_that_was_changed_or_is_a_pickle_is_never_used(server, mine, tmp_path):
    mine.push_to_hub("me/mine", token="x")
    content = server.repositories["me/mine"][-1][1]["schedule.safetensors"]
    server.add("me/mine", {"schedule.safetensors": content[:-1] + bytes([content[-1] ^ 1])})
    with pytest.raises(ScheduleError, match="was changed after it was saved"):
        Schedule.load("hf://me/mine")
    torch.save({"a": 1}, tmp_path / "pickle")
    server.add("me/mine", {"schedule.safetensors": (tmp_path / "pickle").read_bytes()})
    with pytest.raises(ScheduleError, match=r"is a pickle .* was not opened"):
        Schedule.load("hf://me/mine")


def test_a_file_too_large_for_a_schedule_is_not_downloaded(server, mine, monkeypatch):
    mine.push_to_hub("me/mine", token="x")
    monkeypatch.setattr(hub, "LARGEST_FILE", 1000)
    server.requests.clear()
    with pytest.raises(
        ScheduleError, match=r"schedule.safetensors of hf://me/mine has [\d,]+ bytes, but .* at most 1,000"
    ):
        Schedule.load("hf://me/mine")
    assert {kind for kind, *_ in server.requests} == {"HEAD"}


def test_without_huggingface_hub_one_line_says_what_to_install(mine, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for use in (lambda: Schedule.load("hf://me/mine"), lambda: mine.push_to_hub("me/mine")):
        with pytest.raises(ImportError, match=r"pip install 'mlrsnet\[hub\]'"):
            use()


def test_the_model_card_says_what_the_card_holds(mine):
    text = mine.model_card("me/mine", license="apache-2.0")
    assert front_matter(text)[:3] == ["library_name: mlrsnet", "license: apache-2.0", "tags:"]
    for line in (
        "# mine",
        'lr = mlrsnet.LearnedLR(optimizer, "hf://me/mine", total_steps=...)',
        r"| learned on | digits \| 0-4 |",
        "| optimizer | SGD(momentum=0.9) |",
        "| horizon | 300 steps |",
        "| range | fixed, loss, 0.5 |",
        f"| digest | {mine.fingerprint()} |",
        "- digits:",
        "  - accuracy: 97.5",
        "- patches: 0.72",
        "- It was learned from losses between 0.01 and 2.5. Far outside, it warns.",
        "- It was learned on trainings of 300 steps.",
    ):
        assert line in text.splitlines()
    assert CARD.description in text


def test_the_model_card_and_the_terminal_say_the_same(mine):
    card = replace(mine.card, results={"digits": {"seeds": {"first": 97.5}}})
    schedule = Schedule(mine.phases, card)
    page, shown = schedule.model_card("me/mine"), schedule.describe()
    for name, value in facts(card, mine.net.config(), mine.num_phases).items():
        assert f"{name:12} {value}" in shown
        assert f"| {name} | {value.replace('|', chr(92) + '|')} |" in page
    assert "- digits:\n  - seeds:\n    - first: 97.5" in page
    assert "digits:\n               seeds:\n                 first: 97.5" in shown


def test_the_model_card_of_a_bare_schedule_claims_nothing():
    text = Schedule(LSTMNet(4)).model_card("me/bare")
    assert not any(line.startswith("license") for line in front_matter(text))
    assert "The card records no results." in text
    assert "| learned on | nothing: untrained |" in text
    assert "- It is untrained: its LRs mean nothing yet." in text
    assert "total_steps=..., num_classes=...)" in text  # gamma needs num_classes
    assert "| optimizer |" not in text
    assert "| horizon |" not in text


def test_a_licence_that_would_break_the_front_matter_is_refused(mine):
    with pytest.raises(ValueError, match="license must be one of the Hub's identifiers"):
        mine.model_card("me/mine", license="mit\ntags: []")


def test_the_client_checks_the_front_matter_as_yaml(mine):
    from huggingface_hub import ModelCard

    data = ModelCard(mine.model_card("me/mine", license="mit")).data
    assert (data.library_name, data.license, tuple(data.tags)) == ("mlrsnet", "mit", hub.TAGS)
