"""cgrad: write a derivative in TensorFlow, apply it, check it.

The names below are imported when they are first used, so that ``cgrad.faults`` and ``python -m cgrad explain`` need
no TensorFlow. A new public name stands in two places: among the imports, which type checkers and editors read, and
in ``_PLACES``; tests/test_main.py holds the two together.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cgrad import faults as faults
    from cgrad.audit import Audit as Audit
    from cgrad.audit import Met as Met
    from cgrad.audit import audit as audit
    from cgrad.define import custom_jacobian as custom_jacobian
    from cgrad.define import custom_jvp as custom_jvp
    from cgrad.define import custom_vjp as custom_vjp
    from cgrad.diagnosis import Fault as Fault
    from cgrad.diagnosis import Note as Note
    from cgrad.errors import CapturedTensorWarning as CapturedTensorWarning
    from cgrad.errors import ContractError as ContractError
    from cgrad.errors import GradientError as GradientError
    from cgrad.errors import GradientFault as GradientFault
    from cgrad.errors import NotDifferentiableError as NotDifferentiableError
    from cgrad.errors import UsageError as UsageError
    from cgrad.exam import Options as Options
    from cgrad.gradcheck import gradcheck as gradcheck
    from cgrad.jacobians import Jacobians as Jacobians
    from cgrad.report import Report as Report
    from cgrad.transforms import jacobian as jacobian
    from cgrad.transforms import jvp as jvp
    from cgrad.transforms import vjp as vjp

_PLACES = {
    "Audit": "cgrad.audit",
    "Met": "cgrad.audit",
    "audit": "cgrad.audit",
    "custom_jacobian": "cgrad.define",
    "custom_jvp": "cgrad.define",
    "custom_vjp": "cgrad.define",
    "Fault": "cgrad.diagnosis",
    "Note": "cgrad.diagnosis",
    "Options": "cgrad.exam",
    "CapturedTensorWarning": "cgrad.errors",
    "ContractError": "cgrad.errors",
    "GradientError": "cgrad.errors",
    "GradientFault": "cgrad.errors",
    "NotDifferentiableError": "cgrad.errors",
    "UsageError": "cgrad.errors",
    "gradcheck": "cgrad.gradcheck",
    "Jacobians": "cgrad.jacobians",
    "Report": "cgrad.report",
    "jacobian": "cgrad.transforms",
    "jvp": "cgrad.transforms",
    "vjp": "cgrad.transforms",
}

__all__ = [
    "Audit",
    "CapturedTensorWarning",
    "ContractError",
    "Fault",
    "GradientError",
    "GradientFault",
    "Jacobians",
    "Met",
    "NotDifferentiableError",
    "Note",
    "Options",
    "Report",
    "UsageError",
    "audit",
    "custom_jacobian",
    "custom_jvp",
    "custom_vjp",
    "faults",
    "gradcheck",
    "jacobian",
    "jvp",
    "vjp",
]


__version__: str


def __getattr__(name: str) -> Any:
    if name == "faults":
        return importlib.import_module("cgrad.faults")
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("tf-cgrad")
    if name not in _PLACES:
        raise AttributeError(f"module 'cgrad' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Python sets every imported submodule on its package; ``cgrad.gradcheck`` is the function all the same."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _PLACES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
