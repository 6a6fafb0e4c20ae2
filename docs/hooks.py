"""What the site's pages need that mkdocs does not do: formulas, records and reports beside them, and no public name left out."""

import importlib
import inspect
import pkgutil
import re
import shutil
import types
from pathlib import Path
from typing import Any

from griffe import Extension, Object
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

from mlrsnet import integrations

ROOT = Path(__file__).parents[1]
PUBLIC = (
    "mlrsnet",
    "mlrsnet_lab.horizon",
    "mlrsnet_lab.baselines",
    *(
        f"mlrsnet.integrations.{found.name}"
        for found in pkgutil.iter_modules(integrations.__path__)
        if not found.name.startswith("_")
    ),
    "mlrsnet_lab.theory",
)
"""Modules whose `__all__` must be in the API reference, name by name."""

DOCTEST = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)+", flags=re.MULTILINE)
MATH = re.compile(r"^```math\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)((?:results|src|lab|examples)/[^)#]*)\)")
REPORT = "report.html"
_linked: set[Path] = set()


def on_pre_build(config: Any) -> None:
    """Fail if a public name has no docstring or no place in the reference."""
    _linked.clear()
    pages = "\n".join(path.read_text() for path in (Path(config["docs_dir"]) / "api").glob("*.md"))
    missing = undocumented(pages)
    if missing:
        raise PluginError(f"public names without documentation: {'; '.join(missing)}")


def undocumented(pages: str) -> list[str]:
    """Public names that the reference does not show, or that have no docstring."""
    shown = set(re.findall(r"^::: ([\w.]+)$", pages, flags=re.MULTILINE))
    found = []
    for module_name in PUBLIC:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            value = getattr(module, name)
            if f"{module_name}.{name}" not in shown:
                found.append(f"{module_name}.{name} is in no page of docs/api")
            if isinstance(value, type | types.FunctionType) and not inspect.getdoc(value):
                found.append(f"{module_name}.{name} has no docstring")
    return found


def on_page_markdown(markdown: str, *, page: Any, **more: Any) -> str:
    """Formulas become MathML, which browsers draw themselves; records outside docs/ become part of the site."""
    base = "../" * page.url.count("/")
    markdown = MATH.sub(lambda found: f'<div class="math">{convert(found[1].strip(), display="block")}</div>', markdown)
    return OUTSIDE.sub(lambda found: _outside(found[1], found[3], base, page.file.src_uri), markdown)


def _outside(text: str, target: str, base: str, page: str) -> str:
    """A link to a record, a folder of runs or a notebook; source code is named, not linked: the reference shows it."""
    path = ROOT / target
    if not path.exists():
        raise PluginError(f"{page}: {target} is not there")
    if not target.startswith("results") and path.suffix != ".ipynb":
        return text
    _linked.add(path)
    place = f"{target.rstrip('/')}/{REPORT}" if path.is_dir() else target
    return f'<a href="{base}{place}">{text}</a>'


def on_post_build(config: Any) -> None:
    """Copy the records and notebooks that pages link to; a folder of runs becomes its report."""
    site = Path(config["site_dir"])
    for path in sorted(_linked):
        target = site / path.relative_to(ROOT)
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        else:
            from mlrsnet_lab.report import write_report

            write_report(path, target)


class Doctests(Extension):
    """For the API reference: doctests in docstrings become code blocks; Markdown would take them for quotations."""

    def on_object(self, *, obj: Object, **more: Any) -> None:
        """Called for everything that may have a docstring."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A docstring whose doctests, up to the next empty line, are code."""
    return DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
