"""The documentation site: it builds without a warning, forgets no public name, and its pages and reports fit a phone."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def build(out, config=ROOT / "mkdocs.yml"):
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", config, "-d", out]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600, env=quiet)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    result = build(out)
    assert result.returncode == 0, result.stdout + result.stderr
    return out


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_built_with_its_formulas_pictures_and_records(site):
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}
    method = (site / "method.html").read_text()
    assert method.count("<math") >= 8
    assert "```" not in method
    assert not list(site.rglob("*.py"))
    for page in pages:
        for target in re.findall(r'(?:href|src)="([^"#?:]+)(?:#[^"]*)?"', (site / page).read_text()):
            assert (site / page).parent.joinpath(target).exists(), f"{page}: {target}"


def test_a_folder_of_runs_becomes_its_report(site):
    assert "cifar10-patches" in (site / "results.html").read_text()
    assert "Cosine 0.1" in (site / "results" / "horizon_short" / "report.html").read_text()
    for record in ("loop/h200.json", "table1_paper/runs.jsonl"):
        assert (site / "results" / record).read_bytes() == (ROOT / "results" / record).read_bytes()


def test_nothing_comes_from_elsewhere(site):
    for page in site.rglob("*.html"):
        assert not re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="https?:', page.read_text()), page


def test_doctests_in_the_reference_are_code(site):
    text = (site / "api" / "schedules.html").read_text()
    assert "<blockquote>" not in text
    assert text.count('class="gp"') > 10  # prompts, as code shows them


def test_a_public_name_that_is_not_documented_fails_the_build(hooks, monkeypatch):
    pages = "\n".join(path.read_text() for path in (DOCS / "api").glob("*.md"))
    assert hooks.undocumented(pages) == []
    assert hooks.undocumented(pages.replace("::: mlrsnet.LearnedLR\n", "")) == [
        "mlrsnet.LearnedLR is in no page of docs/api"
    ]
    monkeypatch.setattr("mlrsnet_lab.baselines.L4.__doc__", None)
    monkeypatch.setattr("inspect.getdoc", lambda value: value.__doc__)
    assert hooks.undocumented(pages) == ["mlrsnet_lab.baselines.L4 has no docstring"]


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        ("[gone](nowhere.md)", "nowhere.md"),
        pytest.param("[gone](../results/nothing.json)", "results/nothing.json is not there", marks=pytest.mark.nightly),
        pytest.param("::: mlrsnet.no_such_name", "no_such_name", marks=pytest.mark.nightly),
    ],
)
def test_a_page_that_leads_nowhere_fails_the_build(tmp_path, mistake, complaint):
    shutil.copytree(DOCS, tmp_path / "docs")
    page = tmp_path / "docs" / "choosing.md"
    page.write_text(f"{page.read_text()}\n{mistake}\n")
    config = (ROOT / "mkdocs.yml").read_text()
    for name in ("src", "results", "CHANGELOG.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "mkdocs.yml").write_text(config)
    result = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert result.returncode != 0
    assert complaint in result.stdout + result.stderr


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_pages_fit_the_window_and_complain_about_nothing(site, width):
    from playwright.sync_api import sync_playwright

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": width, "height": 900})
        complaints = []
        page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        for path in sorted(site.rglob("*.html")):
            if path.name == "404.html":
                continue
            page.goto(f"http://127.0.0.1:{server.server_port}/{path.relative_to(site).as_posix()}")
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{path.name} is {wide} pixels wide"
            broken = page.evaluate("[...document.images].filter(i => !i.naturalWidth).map(i => i.src)")
            assert not broken, f"{path.name}: {broken}"
        chromium.close()
    server.shutdown()
    server.server_close()
    assert not complaints
