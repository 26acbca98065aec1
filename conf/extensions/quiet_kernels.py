"""TensorFlow loads without a word: what its libraries print then is neither a page's output nor the build's."""

from __future__ import annotations

import logging
import os
import pathlib
import re
import tempfile
from typing import Any

from jupyter_client.manager import KernelManager
from sphinx.application import Sphinx

# The libraries write to file descriptor 2 while they load, whatever TF_CPP_MIN_LOG_LEVEL says (2.21, the
# package `tensorflow`; `tensorflow-cpu` is silent). What a cell itself writes to stderr is still seen.
STARTUP = """
def _load():
    import os
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        import tensorflow
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
_load()
del _load
"""

# A cell's output goes out at its end: pieces are joined by empty lines, and a slow machine makes more of them.
IN_ONE_PIECE = """
def _in_one_piece():
    import sys
    for stream in (sys.stdout, sys.stderr):
        stream.flush_interval = 3600.0
_in_one_piece()
del _in_one_piece
"""


def _load_to_read(app: Sphinx, docname: str, content: list[str]) -> None:
    """Pages with docstrings or faults need TensorFlow in this process (one of several, with ``-j``)."""
    if any(re.search(r"\bauto(function|class|module|exception|data)::|\{fault\}", text) for text in content):
        exec(STARTUP, {})


def _load_to_write(app: Sphinx) -> list[Any]:
    """The pages of the sources need it, too; no page is added here."""
    exec(STARTUP, {})
    return []


def setup(app: Sphinx) -> dict[str, Any]:
    """Gives the kernels of this build a profile of their own, and lets their manager choose encryption."""
    app.connect("source-read", _load_to_read)
    app.connect("html-collect-pages", _load_to_write, priority=100)  # before viewcode's
    logging.getLogger("traitlets").setLevel(logging.WARNING)  # it announces every notebook, whatever -q says
    home = tempfile.TemporaryDirectory(prefix="cgrad-ipython-")
    app._cgrad_ipython = home  # lives as long as the build
    startup = pathlib.Path(home.name) / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00-tensorflow.py").write_text(STARTUP + IN_ONE_PIECE)
    os.environ["IPYTHONDIR"] = home.name
    trait = KernelManager.class_traits().get("transport_encryption")
    if trait is not None:
        trait.default_value = "auto"
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
