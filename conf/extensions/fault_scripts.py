"""The cases of tests/faults as scripts: each function once broken and once repaired, as a reader would paste it.

A case holds both in one function of ``right``. Here the choice is made in the syntax tree, what is then unused is
dropped, and the last line becomes the call of ``gradcheck``. A script runs under a name of its own, so that the places
in its report are the lines on the page.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import linecache
import os
import pathlib
import shutil
import sys
import tempfile
import textwrap
import tokenize
import types
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeGuard

ROOT = pathlib.Path(__file__).parents[2]
FAMILIES = "contract variables upstream values connection modes second_order"
WIDTH = 88
IMPORTS = {"keras": "import keras", "np": "import numpy as np", "tf": "import tensorflow as tf"}


@cache
def cases() -> dict[str, list[Any]]:
    """The cases of tests/faults by the fault they stand for, the most telling first."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    folder = str(ROOT / "tests" / "faults")
    sys.path.insert(0, folder)
    try:
        for family in FAMILIES.split():
            importlib.import_module(family)
        registered = importlib.import_module("registry").CASES
    finally:
        sys.path.remove(folder)
    found: dict[str, list[Any]] = {}
    for first in (slice(1), slice(1, None)):
        for case in registered:
            for name in case.names[first]:
                found.setdefault(name, []).append(case)
    return found


@dataclass(frozen=True)
class Script:
    """A case with ``right`` decided.

    Attributes:
        text: what a reader pastes; the last line prints the report.
        f: the function under test.
        args: its arguments.
    """

    text: str
    f: Any
    args: tuple[Any, ...]


def script(case: Any, right: bool, name: str) -> Script:
    """Writes and runs a case, up to the call of gradcheck.

    Args:
        case: the case.
        right: True for the repaired function.
        name: the name of the module; reports show places in it.
    """
    *before, last = _statements(case, right)
    f, args = last.value.elts
    if isinstance(f, ast.Lambda):
        free = next(n for n in "fgh" if n not in _loaded([*before, f]))
        before += ast.parse(f"def {free}({ast.unparse(f.args)}):\n    return {ast.unparse(f.body)}").body
        f = ast.Name(free)
    shown, kept = _text([*before, _asked(case, f, args)]), _text([*before, _assigned(f, args)])
    module = _run(kept, shown, name)
    return Script(shown, module.f_, module.args_)


def replaced(made: Script, name: str) -> Script:
    """The same script with cgrad.custom_vjp in the place of tf.custom_gradient."""
    text = made.text.replace("tf.custom_gradient", "cgrad.custom_vjp")
    call = next(filter(_is_gradcheck, ast.walk(ast.parse(text))))
    kept = [*text.splitlines()[: call.lineno - 1], ast.unparse(_assigned(call.args[0], ast.Tuple(call.args[1:])))]
    module = _run("\n".join(kept), text, name)
    return Script(text, module.f_, module.args_)


def _is_gradcheck(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "gradcheck"


# --- from a case to the statements of a script ---------------------------------------------------


def _statements(case: Any, right: bool) -> list[Any]:
    """The body of a case's function, decided; the last statement returns (function, arguments)."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(case.make))).body
    assert isinstance(made, ast.FunctionDef)
    folded = _Decided(right).visit(ast.Module(made.body[1:], []))
    body = _reached(folded.body)
    while (fewer := _used(body)) != body:
        body = fewer
    return body


class _Decided(ast.NodeTransformer):
    """Puts a constant in the place of ``right``, and takes the branch that it leads to."""

    def __init__(self, right: bool) -> None:
        self.right = right

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id == "right":
            return ast.Constant(self.right)
        return ast.parse("tf.float64", mode="eval").body if node.id == "D" else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        known = isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant)
        return ast.Constant(not node.operand.value) if known else node  # type: ignore[attr-defined]

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        if not isinstance(node.test, ast.Constant):
            return node
        return node.body if node.test.value else node.orelse

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        if not isinstance(node.test, ast.Constant):
            return node
        return node.body if node.test.value else node.orelse

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "d":
            node.func = ast.parse("tf.constant", mode="eval").body
            node.args.append(ast.parse("tf.float64", mode="eval").body)
        return node.args[0] if name == "reading" else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        self.generic_visit(node)
        node.body = _reached(node.body)
        return node


def _reached(body: list[Any]) -> list[Any]:
    """The statements up to the first return."""
    end = next((k for k, node in enumerate(body) if isinstance(node, ast.Return)), len(body))
    return body[: end + 1]


def _used(body: list[Any]) -> list[Any]:
    """Without the names of this body, and of the functions in it, that nothing reads."""
    loaded = _loaded(body)

    def keep(node: Any) -> bool:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            return node.name in loaded
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            return node.targets[0].id in loaded
        return True

    for node in body:
        if isinstance(node, ast.FunctionDef):
            node.body = _used(node.body) if not _names_outside(node) else node.body
    return [node for node in body if keep(node)]


def _names_outside(node: ast.FunctionDef) -> bool:
    """Whether a function changes names that are not its own."""
    return any(isinstance(inner, (ast.Nonlocal, ast.Global)) for inner in ast.walk(node))


def _loaded(body: list[Any]) -> set[str]:
    """The names that are read somewhere in these statements."""
    names = (node for part in body for node in ast.walk(part) if isinstance(node, ast.Name))
    return {node.id for node in names if not isinstance(getattr(node, "ctx", None), ast.Store)}


# --- the last line, and the text -----------------------------------------------------------------


def _asked(case: Any, f: Any, args: Any) -> ast.stmt:
    """``print(cgrad.gradcheck(f, ...))`` with the options of the case that are not the default."""
    from cgrad.exam import Options

    options = {name: getattr(case, name) for name in ("order", "modes", "surrogate")}
    given = [ast.keyword(k, ast.Constant(v)) for k, v in options.items() if v != getattr(Options(), k)]
    gradcheck = ast.parse("cgrad.gradcheck", mode="eval").body
    return ast.Expr(ast.Call(ast.Name("print"), [ast.Call(gradcheck, [f, *args.elts], given)], []))


def _assigned(f: Any, args: Any) -> ast.stmt:
    """``f_, args_ = f, args``: the last line of what is run."""
    names = ast.Tuple([ast.Name("f_"), ast.Name("args_")])
    return ast.Assign([names], ast.Tuple([f, args]), lineno=0)


def _text(body: list[Any]) -> str:
    """The script: imports, then the statements with room around functions."""
    loaded = _loaded(body)
    lines = [line for name, line in IMPORTS.items() if name in loaded] + ["", "import cgrad", ""]
    for node in body:
        block = ast.unparse(ast.fix_missing_locations(node)).splitlines()
        defines = isinstance(node, (ast.FunctionDef, ast.ClassDef))
        if defines and lines[-1]:
            lines.append("")
        lines += _airy(block) if defines else _broken(block)
        lines += [""] if defines else []
    return _quoted("\n".join(lines))


def _airy(block: list[str]) -> list[str]:
    """An empty line before and after each function inside another, and no brackets around what is returned."""
    made: list[str] = []
    depths: list[int] = []
    for line in filter(str.strip, block):
        depth = len(line) - len(line.lstrip())
        ended = bool(depths) and depth <= depths[-1]
        depths = [d for d in depths if d < depth]
        opens = line.lstrip().startswith(("@", "def "))
        fresh = made and not made[-1].endswith(":") and not made[-1].lstrip().startswith("@")
        if made and depth and (ended or opens) and fresh:
            made.append("")
        if line.lstrip().startswith("def ") and depth:
            depths.append(depth)
        made.append(_bare(line))
    return made


def _bare(line: str) -> str:
    """``return a, b`` for ``return (a, b)``."""
    head, words, inner = line.partition("return (")
    if not words or head.strip() or not inner.endswith(")"):
        return line
    shorter = f"return {inner[:-1]}"
    same = ast.dump(ast.parse(shorter.strip())) == ast.dump(ast.parse(line.strip())) if _parses(shorter) else False
    return head + shorter if same else line


def _parses(line: str) -> bool:
    try:
        ast.parse(line.strip())
    except SyntaxError:
        return False
    return True


def _broken(block: list[str]) -> list[str]:
    """A call of gradcheck that is too long for a line, one argument a line."""
    (line,) = block if len(block) == 1 else ("",)
    if len(line) <= WIDTH or not line.startswith("print(cgrad.gradcheck("):
        return block
    call = ast.parse(line).body[0].value.args[0]  # type: ignore[attr-defined]
    given = [ast.unparse(part) for part in [*call.args, *call.keywords]]
    return ["report = cgrad.gradcheck(", *[f"    {part}," for part in given], ")", "print(report)"]


def _quoted(text: str) -> str:
    """Double quotes, as everywhere on the site."""
    out = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        plain = token.type == tokenize.STRING and token.string.startswith("'") and '"' not in token.string
        out.append(token._replace(string=f'"{token.string[1:-1]}"') if plain else token)
    return tokenize.untokenize(out)


# --- running -------------------------------------------------------------------------------------


@cache
def _folder() -> pathlib.Path:
    return pathlib.Path(tempfile.mkdtemp(prefix="cgrad-faults-"))


def tidy() -> None:
    """Removes the files of the scripts; they are read until their reports are printed."""
    shutil.rmtree(_folder(), ignore_errors=True)
    _folder.cache_clear()


def _run(text: str, shown: str, name: str) -> Any:
    """Runs a text as a module; its source, for whoever asks, is the one that is shown."""
    path = _folder() / f"{name}.py"
    path.write_text(shown)
    linecache.checkcache(str(path))
    module: Any = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module
