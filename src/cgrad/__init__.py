"""cgrad: write a derivative in TensorFlow, apply it, check it."""

from cgrad.define import custom_jacobian as custom_jacobian
from cgrad.define import custom_jvp as custom_jvp
from cgrad.define import custom_vjp as custom_vjp
from cgrad.errors import CapturedTensorWarning as CapturedTensorWarning
from cgrad.errors import ContractError as ContractError
from cgrad.errors import GradientError as GradientError
from cgrad.errors import NotDifferentiableError as NotDifferentiableError
from cgrad.errors import UsageError as UsageError
from cgrad.gradcheck import gradcheck as gradcheck
from cgrad.report import Report as Report
from cgrad.transforms import jacobian as jacobian
from cgrad.transforms import jvp as jvp
from cgrad.transforms import vjp as vjp

__all__ = [
    "CapturedTensorWarning",
    "ContractError",
    "GradientError",
    "NotDifferentiableError",
    "Report",
    "UsageError",
    "custom_vjp",
    "gradcheck",
    "jacobian",
    "vjp",
]
