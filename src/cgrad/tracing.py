"""Where a path leaves TensorFlow: the calls that cut a tape, with the user's file and line, found by following f."""

from __future__ import annotations

import dis
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

# Python functions of TensorFlow whose call ends a path, and what to call them
_CUTS = {
    "numpy": ".numpy()",
    "__array__": "a NumPy call",
    "__float__": "float()",
    "__int__": "int()",
    "__index__": "int()",
    "__complex__": "complex()",
    "stop_gradient": "tf.stop_gradient",
    "numpy_function": "tf.numpy_function",
    "py_function": "tf.py_function",
    "eager_py_func": "tf.py_function",
    "py_func": "tf.py_func",
    "assign": "assign",
    "assign_add": "assign_add",
    "assign_sub": "assign_sub",
}
_STEPS = {
    "round": "tf.round",
    "rint": "tf.math.rint",
    "floor": "tf.floor",
    "ceil": "tf.math.ceil",
    "sign": "tf.sign",
    "argmax": "tf.argmax",
    "argmin": "tf.argmin",
    "argmax_v2": "tf.argmax",
    "argmin_v2": "tf.argmin",
    "one_hot": "tf.one_hot",
    "greater": "a comparison",
    "greater_equal": "a comparison",
    "less": "a comparison",
    "less_equal": "a comparison",
    "equal": "a comparison",
    "cast": "tf.cast",
}


@dataclass(frozen=True)
class Cut:
    """One call that ends a path: what it is, and where it stands in the user's code."""

    operation: str
    file: str
    line: int
    step: bool

    def __str__(self) -> str:
        return f"{self.operation} at {self.place}"

    @property
    def place(self) -> str:
        """The line, as its reader finds it."""
        return place(self.file, self.line)


def cuts(call: Callable[[], Any]) -> list[Cut]:
    """Runs ``call`` and lists the calls in it that cut a tape, in the order they came."""
    found: list[Cut] = []
    through_numpy: list[Cut] = []
    before = sys.getprofile()

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        name = frame.f_code.co_name
        if not is_library(frame.f_code.co_filename) and not _ours(frame.f_code.co_filename):
            through_numpy.extend(_numpy_lines(frame))
        if name == "cast" and not _to_or_from_steps(frame.f_locals):
            return
        if (name in _CUTS or name in _STEPS) and is_library(frame.f_code.co_filename):
            user = _user_frame(frame)
            if user is not None:
                cut = Cut(_CUTS.get(name) or _STEPS[name], user.f_code.co_filename, user.f_lineno, name in _STEPS)
                if cut not in found:
                    found.append(cut)

    sys.setprofile(look)
    try:
        call()
    except Exception:
        pass
    finally:
        sys.setprofile(before)
    # NumPy reads a tensor's memory without a call that could be seen; the lines that name it are what is left
    exact = any(not cut.step for cut in found)
    return found if exact else through_numpy + found


def _numpy_lines(frame: FrameType) -> list[Cut]:
    """The lines of a function that mention the NumPy module."""
    values = {**frame.f_globals, **frame.f_locals}
    lines = []
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_DEREF") and values.get(instruction.argval) is np:
            line = instruction.positions.lineno if instruction.positions else None
            lines.append(Cut("a NumPy call", frame.f_code.co_filename, line or frame.f_lineno, False))
    return list(dict.fromkeys(lines))


def place(file: str, line: int) -> str:
    """File and line; the file of a notebook's cell has a made-up name, which tells its reader nothing."""
    if "ipykernel_" in file or file.startswith("<ipython-input"):
        return f"line {line} of the cell"
    return f"{os.path.basename(file)}:{line}"


def user_line(error: BaseException) -> str:
    """File and line of the innermost frame of a traceback that is neither TensorFlow's nor ours."""
    found, trace = "", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not is_library(name) and not _ours(name):
            found = place(name, trace.tb_lineno)
        trace = trace.tb_next
    return found


def _to_or_from_steps(values: dict[str, Any]) -> bool:
    """Whether a cast goes to, or comes from, a dtype without derivatives."""
    target = getattr(values.get("dtype"), "as_numpy_dtype", values.get("dtype"))
    kinds = [
        getattr(getattr(values.get("x"), "dtype", None), "name", ""),
        getattr(target, "__name__", str(target)),
    ]
    return any(kind.startswith(("int", "uint", "bool")) for kind in kinds)


def is_library(filename: str) -> bool:
    """Whether a file belongs to TensorFlow, Keras or NumPy."""
    return any(f"{os.sep}{part}{os.sep}" in filename for part in ("tensorflow", "keras", "numpy"))


def _ours(filename: str) -> bool:
    return os.path.dirname(__file__) in filename


def _user_frame(frame: FrameType) -> FrameType | None:
    """The caller in the user's code, if the call came from there and not from inside gradcheck."""
    step = frame.f_back
    while step is not None:
        name = step.f_code.co_filename
        if _ours(name):
            return None
        if not is_library(name):
            return step
        step = step.f_back
    return None
