"""Mutants of a module: its source with one small change, such as another operator or constant, or a call left out."""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src" / "mlrsnet"

OTHER: dict[type[ast.AST], list[type[ast.AST]]] = {
    ast.Lt: [ast.LtE, ast.GtE], ast.LtE: [ast.Lt, ast.Gt], ast.Gt: [ast.GtE, ast.LtE], ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.Is: [ast.IsNot], ast.IsNot: [ast.Is], ast.In: [ast.NotIn], ast.NotIn: [ast.In],
    ast.Add: [ast.Sub], ast.Sub: [ast.Add], ast.Mult: [ast.Div], ast.Div: [ast.Mult], ast.FloorDiv: [ast.Mult],
    ast.Mod: [ast.FloorDiv], ast.Pow: [ast.Mult], ast.BitAnd: [ast.BitOr], ast.BitOr: [ast.BitAnd], ast.LShift: [ast.RShift],
    ast.And: [ast.Or], ast.Or: [ast.And],
}  # fmt: skip

SKIPPED = ("annotation", "returns", "decorator_list", "bases")
"""Of a node: what changes nothing, or stops the import."""


@dataclass(frozen=True)
class Mutant:
    """One change. kind: of what. lines: where it is; names: what those lines define, where they are run by the import only."""

    key: str
    kind: str
    module: str
    source: str
    lines: range
    function: str
    names: tuple[str, ...]

    @property
    def place(self) -> str:
        """Among all mutants, by chance: it depends on the change alone, so others keep their places when the code is edited."""
        return hashlib.sha256(self.key.encode()).hexdigest()


def mutants(module: str) -> list[Mutant]:
    """All of a module, such as `meta.provisional`."""
    tree, found, seen = ast.parse(path_of(module).read_text()), [], Counter[str]()
    for parent, field, place, node, around in list(_walk(tree, [])):
        for other in _others(node):
            shown = node if isinstance(node, ast.stmt | ast.expr) and not isinstance(node, ast.Constant) else parent
            before, name = _line(shown), ".".join([module, *_scope(around)])
            _put(parent, field, place, other)
            key = f"{name}: {before} -> {_line(other if shown is node else shown)}"
            if isinstance(node, ast.Call) and isinstance(other, ast.Call):
                gone = next(one for one in node.keywords if one not in other.keywords)
                key = f"{name}: {_line(node.func)}(..., {_line(gone)}) -> without it"
            seen[key] += 1
            key += f" ({seen[key]})" if seen[key] > 1 else ""
            lines, function, names = _where(around)
            found.append(Mutant(key, type(node).__name__, module, ast.unparse(tree), lines, function, names))
            _put(parent, field, place, node)
    return found


def path_of(module: str) -> Path:
    """Its file."""
    return SOURCE.joinpath(*module.split(".")).with_suffix(".py")


def _walk(node: ast.AST, around: list[ast.stmt]) -> Iterator[tuple[ast.AST, str, int | None, ast.AST, list[ast.stmt]]]:
    """Every node with its parent, the place there, and the statements around it."""
    for field, value in ast.iter_fields(node):
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for place, child in children if field not in SKIPPED else ():
            if isinstance(child, ast.AST) and not _is_only_said(child):
                inside = [*around, child] if isinstance(child, ast.stmt) else around
                yield node, field, place, child, inside
                yield from _walk(child, inside)


def _is_only_said(node: ast.AST) -> bool:
    """Errors and their texts; `strict=True`, which is an assertion."""
    said = isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom)
    return said or (isinstance(node, ast.keyword) and node.arg == "strict")


def _others(node: ast.AST) -> Iterator[ast.AST]:
    """What can stand in a node's place."""
    match node:
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float() as value):
            yield ast.Constant(2 * value or 1.0)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.IfExp():
            yield ast.IfExp(node.test, node.orelse, node.body)
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call()):
            yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.Return(value=ast.expr()):
            yield ast.Return(None)
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Call() if node.keywords:
            for place in (place for place, one in enumerate(node.keywords) if not _is_only_said(one)):
                yield ast.Call(node.func, node.args, node.keywords[:place] + node.keywords[place + 1 :])
        case ast.operator() | ast.cmpop() | ast.boolop():
            yield from (other() for other in OTHER.get(type(node), []))


def _put(parent: ast.AST, field: str, place: int | None, node: ast.AST) -> None:
    if place is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[place] = node
    ast.fix_missing_locations(parent)


def _line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0]


def _scope(around: list[ast.stmt]) -> list[str]:
    return [one.name for one in around if isinstance(one, ast.FunctionDef | ast.ClassDef)]


def _where(around: list[ast.stmt]) -> tuple[range, str, tuple[str, ...]]:
    """The lines of a change, the text of the function that it is in, and what its lines define if the import runs them."""
    last, functions = around[-1], [one for one in around if isinstance(one, ast.FunctionDef)]
    if isinstance(last, ast.FunctionDef):  # a default: whatever runs the body
        return range(last.body[0].lineno, (last.end_lineno or 0) + 1), ast.unparse(last), ()
    header = getattr(last, "body", None)
    end = header[0].lineno - 1 if header else last.end_lineno or 0
    lines = range(last.lineno, max(end, last.lineno) + 1)
    if functions:
        cached = [one.name for one in functions if any("cache" in ast.unparse(by) for by in one.decorator_list)]
        return lines, ast.unparse(functions[-1]), tuple(cached)
    targets: list[Any] = getattr(last, "targets", None) or [getattr(last, "target", None)]
    return lines, "", tuple(name.id for one in targets for name in ast.walk(one) if isinstance(name, ast.Name))
