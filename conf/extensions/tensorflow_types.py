"""TensorFlow's types live in private modules; in the documentation they are ``tf.Tensor`` and so on."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

PREFIXES = ("tensorflow.python.", "tensorflow._aliases")


def public_module(module: str) -> str:
    """The public module of a TensorFlow type; other modules are left alone."""
    return "tf" if module.startswith(PREFIXES) or module == "tensorflow" else module


def _set(app: Sphinx, config: Config) -> None:
    config.typehints_fixup_module_name = public_module


def setup(app: Sphinx) -> dict[str, Any]:
    """Sets the function here, not in conf.py, so that the configuration can be pickled."""
    app.connect("config-inited", _set)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
