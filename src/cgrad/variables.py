"""The variables that a function reads without getting them as arguments, and the gradients that its rule has for them.

TensorFlow hands them over in the order of a set in eager mode, and by name in a graph; a rule here answers by name or
by variable, so that no order can matter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from cgrad import bind, contract, errors


def captured(watched: Sequence[Any], arguments: Sequence[bind.Argument]) -> list[Any]:
    """Returns the variables among ``watched`` that no argument in ``nondiff=`` stands for."""
    declared = [leaf for a in arguments if a.static for leaf in _objects(a.value)]
    return [v for v in watched if all(v is not leaf for leaf in declared)]


def accepted_by(rule: Callable[..., Any]) -> bool:
    """Returns whether a rule takes ``variables=``. A plain function is read without the slow `inspect.signature`."""
    code = getattr(rule, "__code__", None)
    if code is not None and not hasattr(rule, "__wrapped__"):
        named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return "variables" in named or bool(code.co_flags & inspect.CO_VARKEYWORDS)
    parameters = inspect.signature(rule).parameters.values()
    return any(p.name == "variables" or p.kind is p.VAR_KEYWORD for p in parameters)


def missing(function: str, kind: str, variables: Sequence[Any]) -> errors.ContractError:
    """Returns the error for a rule that does not answer for the variables that the function reads."""
    repair = (
        "let the rule take them: def grad(upstream, variables=None), and return (gradients of the arguments,\n"
        "{variable name: gradient}); or pass them as arguments"
    )
    if kind != "vjp":
        repair = "pass them as arguments (a variable is taken as a tensor), or make them trainable=False"
    return errors.ContractError(
        errors.describe(
            "variables-missing",
            function,
            f"the function reads the trainable variables {_listed(in_order(variables))}, and its rule does not answer "
            "for them",
            "a variable that is read is an input too; its gradient comes from the rule or from nowhere.",
            repair,
        )
    )


def split(function: str, returned: Any, variables: list[Any]) -> tuple[Any, dict[Any, Any]]:
    """Takes ``(gradients of the arguments, gradients of the variables)`` apart.

    Returns:
        The first, and the second by ``variable.ref()``.

    Raises:
        ContractError: if it is no pair, or a variable has no gradient, or there is one for no variable.
    """
    if not isinstance(returned, (list, tuple)) or len(returned) != 2:
        due = f"(gradients of the arguments, gradients of {_listed(variables)})"
        raise _wrong_number(function, "no pair of gradients", due)
    gradients, answers = returned
    if isinstance(answers, (list, tuple)) and not _are_pairs(answers) and len(answers) != len(variables):
        due = f"{len(variables)} ({_listed(variables)})"
        raise _wrong_number(function, f"{len(answers)} gradients of variables", due)
    by_ref = _by_reference(answers, variables)
    if set(by_ref) != {v.ref() for v in variables}:
        came = ", ".join(f"`{_key_name(key)}`" for key in answers) if isinstance(answers, Mapping) else "others"
        raise _wrong_number(function, f"gradients of {came}", f"gradients of {_listed(variables)}")
    return gradients, by_ref


def without(returned: Any) -> Any:
    """Returns the gradients of the arguments from ``(gradients, [])``: a rule for variables when none was read."""
    pair = isinstance(returned, (list, tuple)) and len(returned) == 2
    empty = pair and isinstance(returned[1], (list, tuple, dict)) and not returned[1]
    return returned[0] if empty else returned


def in_order(variables: Sequence[Any]) -> list[Any]:
    """Returns the variables by name, as a rule gets them in every mode."""
    return sorted(variables, key=lambda v: str(v.name))


def name(variable: Any) -> str:
    """Returns a variable's name without the number of its output."""
    return str(variable.name).split(":")[0]


def _by_reference(answers: Any, variables: list[Any]) -> dict[Any, Any]:
    if isinstance(answers, Mapping):
        return {_reference(key, variables): gradient for key, gradient in answers.items()}
    if isinstance(answers, (list, tuple)):
        keys_and_gradients = answers if _are_pairs(answers) else zip(variables, answers, strict=True)
        return {_reference(key, variables): gradient for key, gradient in keys_and_gradients}
    return {variables[0].ref(): answers} if len(variables) == 1 else {}


def _reference(key: Any, variables: Sequence[Any]) -> Any:
    """The variable that a key of the answer means: by its name, by itself (Keras's too), or by its ``ref()``."""
    if isinstance(key, str):
        named = [v for v in variables if key in (v.name, name(v))]
        return named[0].ref() if len(named) == 1 else key
    value = getattr(key, "value", None)
    if not isinstance(key, tf.Variable) and isinstance(value, tf.Variable):
        key = value
    return key.ref() if isinstance(key, tf.Variable) else key


def _are_pairs(answers: Sequence[Any]) -> bool:
    return bool(answers) and all(
        isinstance(answer, tuple) and len(answer) == 2 and hasattr(answer[0], "trainable") for answer in answers
    )


def _wrong_number(function: str, came: str, due: str) -> errors.ContractError:
    violation = contract.Violation(
        "variables-arity",
        "",
        came,
        due,
        "every trainable variable that the function reads is an input, and has one gradient.",
        "return gradients, {'name of the variable': its gradient, ...}",
    )
    return errors.ContractError(errors.describe_violation(violation, function))


def _listed(variables: Sequence[Any]) -> str:
    return ", ".join(f"`{name(v)}`" for v in variables)


def _key_name(key: Any) -> str:
    deref = getattr(key, "deref", None)
    return name(deref()) if deref else str(getattr(key, "name", key))


def _objects(value: Any) -> list[Any]:
    try:
        return list(tf.nest.flatten(value))
    except (TypeError, ValueError):
        return [value]
