"""The definers: functions whose derivative is written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, overload

import tensorflow as tf

from cgrad import bind, engine, errors, linear, rules, usage

P = ParamSpec("P")
R = TypeVar("R")

Rule = Callable[..., Any]


@overload
def custom_vjp(
    function: Callable[P, tuple[R, Rule]],
    *,
    nondiff: str | Iterable[str] = (),
    numpy: bool = False,
    out: Any = None,
) -> Callable[P, R]: ...


@overload
def custom_vjp(
    function: None = None,
    *,
    nondiff: str | Iterable[str] = (),
    numpy: bool = False,
    out: Any = None,
) -> Callable[[Callable[P, tuple[R, Rule]]], Callable[P, R]]: ...


def custom_vjp(
    function: Callable[..., Any] | None = None,
    *,
    nondiff: str | Iterable[str] = (),
    numpy: bool = False,
    out: Any = None,
) -> Any:
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

    A rule that leaves TensorFlow by itself (``.numpy()``, `tf.numpy_function`) is a constant to the second derivative,
    and nobody can tell: say ``numpy=True`` for it. Under `tf.vectorized_map` a rule is used by a tape inside the mapped
    function, and not by one around the map: the vectoriser rewrites the forward pass.

    Args:
        function: the function to decorate.
        nondiff: the names of arguments that are no tensors or take no gradient. They stay Python values, also in
            a graph.
        numpy: whether the function and its rule are NumPy code: they get and return arrays. In a graph the value is
            computed a second time for the gradient. A second derivative raises; the result is not for XLA, and a
            SavedModel of it works only in the process that made it.
        out: with ``numpy=True``, the `tf.TensorSpec` (or structure of them) of the output. By default it is found by
            a call, in a graph by one call on arrays of ones.

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
        evaluate = rules.outside_vjp if numpy else rules.of_vjp
        options = _options("custom_vjp", numpy, out)
        return engine.decorated(engine.Definition("vjp", function, nondiff, evaluate, None, options))

    return decorate if function is None else decorate(function)


def custom_jvp(
    rule: Callable[..., Any],
    *,
    nondiff: str | Iterable[str] = (),
    numpy: bool = False,
    out: Any = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Defines a function together with its Jacobian-vector product, the derivative along a direction.

    ``rule(primals, tangents)`` returns J v, in the structure, shapes and dtypes of y. ``primals`` is the tuple of all
    arguments of the call in the order of the signature, ``tangents`` the tuple of their directions, each in the
    structure of its argument; the direction of an argument without a derivative (``nondiff``, integers) is None.
    Reverse mode comes from it by transposition, so that the rule has to be linear in the tangents. The first call in
    eager mode looks whether it is.

    Args:
        rule: the directional derivative.
        nondiff: the names of arguments that are no tensors or take no gradient.
        numpy: whether function and rule are NumPy code. Reverse mode then applies the rule once for each entry of
            the arguments: supply a VJP or a Jacobian where there are many.
        out: with ``numpy=True``, what the output is like; see `cgrad.custom_vjp`.

    Returns:
        A decorator for a function that returns y.

    Raises:
        UsageError: when an argument of a call cannot be a tensor and is not in ``nondiff``.
        ContractError: when the rule returns something else than what is due, or is seen not to be linear.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> @cgrad.custom_jvp(lambda primals, tangents: 2.0 * primals[0] * tangents[0])
        ... def square(x):
        ...     return x * x
        >>> x = tf.constant([1.0, 2.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = square(x)
        >>> tape.gradient(y, x).numpy()
        array([2., 4.], dtype=float32)
        >>> with tf.autodiff.ForwardAccumulator(x, tf.constant([1.0, 0.0])) as forward:
        ...     y = square(x)
        >>> forward.jvp(y).numpy()
        array([2., 0.], dtype=float32)
    """
    _require_callable("custom_jvp", rule)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _require_callable("custom_jvp(rule)", function)
        evaluate = rules.outside_jvp if numpy else rules.of_jvp
        options = _options("custom_jvp", numpy, out)
        return engine.decorated(engine.Definition("jvp", function, nondiff, evaluate, rule, options))

    return decorate


def custom_jacobian(
    jacobian: Callable[..., Any],
    *,
    diagonal: bool = False,
    batched: bool | int = False,
    nondiff: str | Iterable[str] = (),
    numpy: bool = False,
    out: Any = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Defines a function together with its Jacobian.

    ``jacobian`` takes the arguments of the function and returns dy_i / dx_j as one of

    - a tensor of shape ``y.shape + x.shape``;
    - with ``diagonal=True`` a tensor of shape ``y.shape``, for a function that works element by element: J is zero
      where the indices differ (an argument may have been broadcast);
    - with ``batched=True`` (or a number of axes) a tensor of shape ``y.shape + x.shape[1:]``, for a function that
      works on each entry of a batch alone;
    - a `tf.linalg.LinearOperator` from flattened x to flattened y, or with batch axes;
    - a `tf.SparseTensor` of shape ``y.shape + x.shape``.

    For several arguments it returns a tuple with one for each (None where there is no influence) or a dict by name,
    for several outputs a structure like theirs with that in each place. Nothing structured is ever made dense.

    Args:
        jacobian: the Jacobian as a function of the same arguments.
        diagonal: whether tensors are diagonals.
        batched: whether (or how many) leading axes are batch axes.
        nondiff: the names of arguments that are no tensors or take no gradient.
        numpy: whether function and Jacobian are NumPy code, with the same forms but operators and sparse tensors.
        out: with ``numpy=True``, what the output is like; see `cgrad.custom_vjp`.

    Returns:
        A decorator for a function that returns y.

    Raises:
        UsageError: when an argument of a call cannot be a tensor and is not in ``nondiff``, or when ``diagonal`` and
            ``batched`` are both given.
        ContractError: when the Jacobian is used and its structure, shape or dtype is not what is due.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> @cgrad.custom_jacobian(lambda x: [[0.0, 1.0], [2.0, 0.0]])
        ... def f(x):
        ...     return tf.stack([x[1], 2.0 * x[0]])
        >>> x = tf.constant([1.0, 2.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = f(x)
        >>> tape.jacobian(y, x).numpy()
        array([[0., 1.],
               [2., 0.]], dtype=float32)

        A diagonal, in NumPy:

        >>> import numpy as np
        >>> @cgrad.custom_jacobian(lambda x: np.cos(x), diagonal=True, numpy=True)
        ... def sine(x):
        ...     return np.sin(x)
        >>> cgrad.vjp(sine, tf.constant([0.0, np.pi]))[1](tf.constant([1.0, 3.0])).numpy()
        array([ 1., -3.], dtype=float32)
    """
    _require_callable("custom_jacobian", jacobian)
    usage.flag("custom_jacobian(diagonal=)", diagonal)
    if not isinstance(batched, bool):
        usage.integer("custom_jacobian(batched=)", batched, 0, "a bool, or a number of axes,")
    if diagonal and batched:
        raise errors.UsageError("cgrad.custom_jacobian: a Jacobian is either diagonal=True or batched=True")
    form = linear.Form(diagonal, int(batched))

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _require_callable("custom_jacobian(jacobian)", function)
        evaluate = rules.outside_jacobian if numpy else rules.of_jacobian
        options = {**_options("custom_jacobian", numpy, out), "form": form}
        return engine.decorated(engine.Definition("jacobian", function, nondiff, evaluate, jacobian, options))

    return decorate


def _options(definer: str, numpy: bool, out: Any) -> dict[str, Any]:
    usage.flag(f"{definer}(numpy=)", numpy)
    if out is not None and not numpy:
        raise errors.UsageError(f"cgrad.{definer}: out= describes what NumPy code returns; say numpy=True with it")
    specs = [] if out is None else tf.nest.flatten(out)
    if out is not None and not (specs and all(isinstance(spec, tf.TensorSpec) for spec in specs)):
        raise errors.UsageError(f"cgrad.{definer}: out= takes a tf.TensorSpec or a structure of them, and got {out!r}")
    return {"numpy": numpy, "out": out}


def _require_callable(definer: str, function: object) -> None:
    if not callable(function):
        raise errors.UsageError(f"cgrad.{definer} decorates a function, and got {bind.describe_value(function)}")
