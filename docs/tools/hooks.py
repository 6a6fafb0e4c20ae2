"""What the site's pages need before mkdocs reads them: records and reports beside them, formulas, and no name forgotten."""

import importlib
import inspect
import pkgutil
import re
import shutil
import types
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

from mlrsnet import integrations

ROOT = Path(__file__).parents[2]
PUBLIC = (
    "mlrsnet",
    "mlrsnet.horizon",
    "mlrsnet.baselines",
    *(
        f"mlrsnet.integrations.{found.name}"
        for found in pkgutil.iter_modules(integrations.__path__)
        if not found.name.startswith("_")
    ),
    "mlrsnet.lab.theory",
)
"""Modules whose `__all__` must be in the API reference, name by name."""

MATH = re.compile(r"^```math\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)((?:results|src)\b[^)#]*)\)")
REPORT = "report.html"
_linked: set[Path] = set()


def on_pre_build(config: Any) -> None:
    """Fail where a public name has no docstring or no place in the reference."""
    _linked.clear()
    pages = "\n".join(path.read_text() for path in (Path(config["docs_dir"]) / "api").glob("*.md"))
    missing = undocumented(pages)
    if missing:
        raise PluginError(f"public names without documentation: {'; '.join(missing)}")


def undocumented(pages: str) -> list[str]:
    """Public names that the reference does not show, or that say nothing about themselves."""
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
    """Formulas become MathML, which browsers draw by themselves; what lies outside of docs/ becomes part of the site."""
    base = "../" * page.url.count("/")
    markdown = MATH.sub(lambda found: f'<div class="math">{convert(found[1].strip(), display="block")}</div>', markdown)
    return OUTSIDE.sub(lambda found: _outside(found[1], found[3], base, page.file.src_uri), markdown)


def _outside(text: str, target: str, base: str, page: str) -> str:
    """A link to a record or a folder of them; source is named, not linked: the reference shows it."""
    path = ROOT / target
    if not path.exists():
        raise PluginError(f"{page}: {target} is not there")
    if not target.startswith("results"):
        return text
    _linked.add(path)
    place = f"{target.rstrip('/')}/{REPORT}" if path.is_dir() else target
    return f'<a href="{base}{place}">{text}</a>'


def on_post_build(config: Any) -> None:
    """Copy the records that pages point at; a folder of runs becomes its report."""
    site = Path(config["site_dir"])
    for path in sorted(_linked):
        target = site / path.relative_to(ROOT)
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        else:
            from mlrsnet.lab.report import write_report

            write_report(path, target)
