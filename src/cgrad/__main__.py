"""The command line: ``python -m cgrad explain CG101``, ``check module:function 'float32[2,3]'``, ``audit script.py``.

Exit status: 0 right, 1 a fault, 2 bad use, 130 interrupted. ``explain`` imports no TensorFlow.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import json
import math
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cgrad import faults, text
from cgrad.usage import LARGEST

if TYPE_CHECKING:
    import numpy as np

FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
_RANDOM = re.compile(r"([a-z]+\d*)\[\s*((?:\d+\s*(?:,\s*\d+\s*)*)?)\]")
_AXES = 32
_MODES = ("eager", "graph", "xla", "pfor", "forward")  # cgrad.exam has them too, and TensorFlow with them


class BadUse(Exception):
    """A command line that cannot be run: which argument, what came, what was due."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status.

    Examples:
        >>> from cgrad.__main__ import main
        >>> main(["explain", "CG105"])
        CG105 not-unbroadcast
        ...
        0
    """
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        print(f"python -m cgrad {options.command}: interrupted", file=sys.stderr)
        return 130  # as a shell says it
    except BadUse as error:
        print(f"python -m cgrad {options.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe, head say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m cgrad", description="Check hand-written derivatives in TensorFlow.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="explain | check | audit")

    explain = commands.add_parser("explain", help="what a fault is, why it is one, how to repair it")
    explain.add_argument("fault", nargs="?", help="a code (CG105) or a name (not-unbroadcast); all are listed without")
    explain.set_defaults(run=_explain)

    check = commands.add_parser(
        "check",
        help="check the derivative of a function",
        epilog="Exit status: 0 if it is right, 1 if it is wrong, 2 if it could not be asked.",
    )
    check.add_argument("target", metavar="module:function", help="found from the current directory")
    check.add_argument(
        "inputs",
        nargs="*",
        metavar="input",
        help="'float32[2,3]' and 'float64[]' are drawn at random (normal; integers are 0 or 1); 2.0 and 3 stand for "
        "themselves",
    )
    check.add_argument("--order", type=int, default=2, help="1: first derivatives only; 2 (default): second ones too")
    check.add_argument("--modes", default=",".join(_MODES), help="with commas between; by default %(default)s")
    check.add_argument("--surrogate", action="store_true", help="the rule differs from the derivative on purpose")
    check.add_argument("--rtol", type=float, help="the relative difference that counts as rounding")
    check.add_argument("--seed", type=int, default=0, help="of the inputs and of the check; 0 by default")
    check.add_argument("--json", action="store_true", help="the report as JSON on stdout")
    check.set_defaults(run=_check)

    audit = commands.add_parser(
        "audit",
        help="run a script and check every custom gradient that it meets",
        epilog="Exit status: 0 if all are right, 1 if one is wrong, 2 if the script could not be run.",
    )
    audit.add_argument("script", help="a Python file")
    audit.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script finds in sys.argv")
    audit.add_argument("--max-seconds", type=float, default=60.0, help="of checking; 60 by default")
    audit.add_argument("--allow", default="", help="names of functions that are wrong on purpose, with commas between")
    audit.add_argument("--json", action="store_true", help="the result as JSON, on the last line of stdout")
    audit.set_defaults(run=_audit)
    return parser


# --- explain ------------------------------------------------------------------------------------------------


def _explain(options: argparse.Namespace) -> int:
    if options.fault is None:
        lines = [line for entry in faults.CATALOGUE for line in _row(entry)]
        lines += ["", "python -m cgrad explain CG105   # one of them in full"]
    else:
        try:
            lines = _page(faults.find(options.fault))
        except KeyError as error:
            raise BadUse(f"{error.args[0]}; 'python -m cgrad explain' lists all") from None
    print(text.encodable("\n".join(lines), sys.stdout))
    return 0


def _row(entry: faults.Entry) -> list[str]:
    width = max(len(name) for name in faults.BY_NAME)
    first, *rest = text.wrapped(entry.summary, width=text.WIDTH - width - 9)
    return [f"{entry.code}  {entry.name:<{width}}  {first}", *(" " * (width + 9) + line for line in rest)]


def _page(entry: faults.Entry) -> list[str]:
    """The entry's own text, wrapped; its code is left as it is."""
    lines: list[str] = []
    for line in str(entry).splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        fits = len(line) <= text.WIDTH or len(indent) >= 4
        lines += [line] if fits else [indent + part for part in text.wrapped(line.strip(), width=text.WIDTH - 2)]
    return lines


# --- check --------------------------------------------------------------------------------------------------


def _check(options: argparse.Namespace) -> int:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow: its start-up lines are no report
    for given in options.inputs:
        _shape(given)
    if options.seed < 0:
        raise BadUse(f"--seed: a non-negative integer was due, but got {options.seed}")
    # what f prints does not belong into the JSON
    quiet = contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext()
    with quiet:
        function = _function(options.target)
        _fits(function, options)
        report = _report(function, options)
    if options.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        report.show()
    return 0 if report.ok else 1


# --- audit --------------------------------------------------------------------------------------------------


def _audit(options: argparse.Namespace) -> int:
    """Runs the script as ``python script.py`` would, and lists what it met."""
    if not os.path.isfile(options.script):
        raise BadUse(f"script: a Python file was due, but got {options.script!r}")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import runpy

    from cgrad.audit import audit
    from cgrad.errors import UsageError

    before, sys.argv = sys.argv, [options.script, *options.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(options.script)))
    allow = [name.strip() for name in options.allow.split(",") if name.strip()]
    try:
        with audit(max_seconds=options.max_seconds, allow=allow) as found:
            try:
                runpy.run_path(options.script, run_name="__main__")
            except SystemExit as end:
                if end.code not in (None, 0):
                    raise BadUse(f"{options.script} ended with status {end.code}") from None
            except Exception as error:
                raise _of_the_script(options.script, error) from None
    except UsageError as error:  # its text starts with the name of the option
        raise BadUse(f"--{str(error).replace('_', '-', 1)}") from None
    finally:
        sys.argv = before
        del sys.path[0]
    print(json.dumps(found.to_dict()) if options.json else found)
    return 0 if found.ok else 1


def _of_the_script(script: str, error: Exception) -> BadUse:
    """Prints the script's own traceback, without the frames that ran it."""
    trace = error.__traceback__
    while trace is not None and os.path.abspath(trace.tb_frame.f_code.co_filename) != os.path.abspath(script):
        trace = trace.tb_next
    traceback.print_exception(error.with_traceback(trace), chain=trace is not None)
    place = f", line {trace.tb_lineno}" if trace is not None else ""
    return BadUse(f"{script} raised {_say(error)}{place}; nothing was checked")


def _report(function: Any, options: argparse.Namespace) -> Any:
    import numpy as np

    from cgrad.errors import UsageError
    from cgrad.gradcheck import gradcheck

    random = np.random.default_rng(options.seed)
    inputs = [_input(given, random) for given in options.inputs]
    modes = tuple(mode.strip() for mode in options.modes.split(",") if mode.strip())
    try:
        return gradcheck(
            function,
            *inputs,
            order=options.order,
            modes=modes,
            surrogate=options.surrogate,
            rtol=options.rtol,
            seed=options.seed,
        )
    except UsageError as error:
        raise BadUse(f"--{error}") from None  # its text starts with the name of the option
    except SystemExit as end:
        raise BadUse(f"{options.target} left the program: {_say(end)}") from None


def _function(target: str) -> Any:
    module_name, colon, path = target.partition(":")
    if not (colon and module_name and path) or target.count(":") > 1:
        raise BadUse(f"module:function was due, such as package.module:f, but got {target!r}")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise BadUse(f"{target}: the module {module_name} cannot be imported: {_say(error)}") from None
    for name in path.split("."):
        if not hasattr(found, name):
            raise BadUse(f"{target}: {_nameless(found, name)}")
        found = getattr(found, name)
    if not callable(found):
        raise BadUse(f"{target}: a function was due, but it is of type {type(found).__name__}")
    return found


def _fits(function: Any, options: argparse.Namespace) -> None:
    """Whether the function takes so many inputs; not known of every callable."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*options.inputs)
    except TypeError as error:
        raise BadUse(
            f"{options.target}: inputs for {signature} were due, but got {len(options.inputs)} ({error})"
        ) from None


def _nameless(owner: Any, name: str) -> str:
    import difflib

    place = getattr(owner, "__name__", type(owner).__name__)
    near = difflib.get_close_matches(name, [n for n in dir(owner) if not n.startswith("__")], 3, 0.5)
    hint = f"; near it: {', '.join(near)}" if near else ""
    return f"{place} has no {name!r}{hint}"


def _say(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _shape(given: str) -> tuple[str, tuple[int, ...]] | complex:
    """The dtype and shape that an argument asks for, or the number that it is."""
    found = _RANDOM.fullmatch(given.strip())
    if found and found[1] in FLOATS + INTEGERS:
        return found[1], _sizes(given, [size.strip() for size in found[2].split(",") if size.strip()])
    for number in (int, float, complex):
        with contextlib.suppress(ValueError):
            return number(given)
    dtypes = ", ".join(FLOATS + INTEGERS)
    raise BadUse(
        f"input {given!r}: a dtype with a shape, such as 'float32[2,3]' or 'float64[]', or a number was due\n"
        f"  dtypes: {dtypes}"
    )


def _sizes(given: str, sizes: list[str]) -> tuple[int, ...]:
    """The sizes of a shape that can be drawn: nothing is allocated before they are judged."""
    if len(sizes) > _AXES:
        raise BadUse(f"input {text.clean(given)[:40]!r}: at most {_AXES} axes were due, but got {len(sizes)}")
    shape = tuple(int(size[:20]) for size in sizes)  # twenty digits are too many already
    if math.prod(shape) > LARGEST:
        raise BadUse(f"input {text.clean(given)[:60]!r}: at most {LARGEST} elements were due")
    return shape


def _input(given: str, random: np.random.Generator) -> Any:
    import tensorflow as tf

    wanted = _shape(given)
    if not isinstance(wanted, tuple):
        return wanted
    name, shape = wanted
    if name in INTEGERS:
        return tf.cast(tf.constant(random.integers(0, 2, shape)), name)
    value = random.normal(size=shape)
    if name.startswith("complex"):
        return tf.cast(tf.constant(value + 1j * random.normal(size=shape)), name)
    return tf.cast(tf.constant(value), name)


if __name__ == "__main__":
    sys.exit(main())
