"""Types are shown under the names their users import: ``tf.Tensor``, ``cgrad.Fault``, not the module they live in."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config


def public_module(module: str) -> str:
    """The module that a type is imported from; modules of others are left alone."""
    if module == "tensorflow" or module.startswith(("tensorflow.python.", "tensorflow._aliases")):
        return "tf"
    if module == "cgrad.faults":  # a public module of its own
        return module
    return "cgrad" if module.startswith("cgrad.") else module


def _set(app: Sphinx, config: Config) -> None:
    config.typehints_fixup_module_name = public_module


def setup(app: Sphinx) -> dict[str, Any]:
    """Sets the function here, not in conf.py, so that the configuration can be pickled."""
    app.connect("config-inited", _set)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
