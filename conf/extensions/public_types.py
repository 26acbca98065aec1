"""Types are shown under the names their users import: ``tf.Tensor``, ``cgrad.Fault``, not the module they live in."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def public_module(module: str) -> str:
    """The module that a type is imported from; modules of others are left alone."""
    if module == "tensorflow" or module.startswith(("tensorflow.python.", "tensorflow._aliases")):
        return "tf"
    if module == "cgrad.faults":  # a public module of its own
        return module
    return "cgrad" if module.startswith("cgrad.") else module


def _set(app: Sphinx) -> None:
    app.config.typehints_fixup_module_name = public_module


def setup(app: Sphinx) -> dict[str, Any]:
    """Sets the function once the configuration has been compared with the last build's.

    A function is not kept with the environment: set any earlier it would count as changed, and every page be read anew.
    """
    app.connect("builder-inited", _set)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
