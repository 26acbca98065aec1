"""The definers: functions whose derivative is written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, overload

from cgrad import bind, engine, errors

P = ParamSpec("P")
R = TypeVar("R")

Rule = Callable[..., Any]


@overload
def custom_vjp(
    function: Callable[P, tuple[R, Rule]], *, nondiff: str | Iterable[str] = ()
) -> Callable[P, R]: ...


@overload
def custom_vjp(
    function: None = None, *, nondiff: str | Iterable[str] = ()
) -> Callable[[Callable[P, tuple[R, Rule]]], Callable[P, R]]: ...


def custom_vjp(function: Callable[..., Any] | None = None, *, nondiff: str | Iterable[str] = ()) -> Any:
    """Defines a function together with its vector-Jacobian product; takes the place of `tf.custom_gradient`.

    The decorated function returns ``(y, rule)``. The rule gets the upstream gradient u, of the shape of y, and returns
    u^T J, of the shape of x. With several arguments it returns one gradient for each, in order or as a dict by name;
    the gradient of a structured argument has that structure, and a dict is matched by key. With several outputs the
    rule gets one upstream for each; an output that nobody used comes as zeros, and never as None or IndexedSlices.

    What the rule returns is checked: number, structure, shape and dtype. Static shapes are checked while a graph is
    traced and cost nothing when it runs; unknown sizes are compared when it runs.

    A rule of a function that reads trainable variables takes ``variables=None``, and returns a pair: the gradients of
    the arguments, and those of the variables as a dict by name or by ``variable.ref()``, or as a list in the order of
    ``variables`` (which is by name).

    Args:
        function: the function to decorate.
        nondiff: the names of arguments that are no tensors or take no gradient. They stay Python values, in a graph too.

    Returns:
        A function of the same signature that returns y alone.

    Raises:
        UsageError: when an argument of a call cannot be a tensor and is not in ``nondiff``.
        ContractError: when the rule is applied and returns something else than what is due.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> @cgrad.custom_vjp
        ... def f(x):
        ...     def grad(upstream):
        ...         return tf.stack([2.0 * upstream[1], upstream[0]])
        ...     return tf.stack([x[1], 2.0 * x[0]]), grad
        >>> def jacobian(x):
        ...     with tf.GradientTape() as tape:
        ...         tape.watch(x)
        ...         y = f(x)
        ...     return tape.jacobian(y, x)
        >>> x = tf.constant([1.0, 2.0])
        >>> jacobian(x).numpy()
        array([[0., 1.],
               [2., 0.]], dtype=float32)
        >>> tf.function(jacobian)(x).numpy()
        array([[0., 1.],
               [2., 0.]], dtype=float32)
        >>> tf.function(jacobian, jit_compile=True)(x).numpy()
        array([[0., 1.],
               [2., 0.]], dtype=float32)
        >>> cgrad.jacobian(f, x).numpy()
        array([[0., 1.],
               [2., 0.]], dtype=float32)
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _require_callable("custom_vjp", function)
        return engine.decorated(engine.Definition("vjp", function, nondiff, _evaluate_vjp))

    return decorate if function is None else decorate(function)


def _require_callable(definer: str, function: object) -> None:
    if not callable(function):
        raise errors.UsageError(f"cgrad.{definer} decorates a function, and got {bind.describe_value(function)}")


def _evaluate_vjp(
    definition: engine.Definition, bound: bind.Bound, args: list[Any], kwargs: dict[str, Any]
) -> engine.Evaluated:
    del bound
    returned = definition.function(*args, **kwargs)
    if not isinstance(returned, (list, tuple)) or len(returned) != 2 or not callable(returned[1]):
        raise errors.ContractError(
            errors.describe(
                "missing-grad-fn",
                definition.name,
                "the decorated function has to return (value, rule), and returned something else",
                "the value y comes first, then the function that maps the upstream u to u^T J.",
                "return y, grad",
            )
        )
    value, rule = returned
    return engine.Evaluated(value, rule, None, rule)
