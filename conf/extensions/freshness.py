"""Pages are run again when the package or TensorFlow changes, not only when their text does."""

from __future__ import annotations

import hashlib
import pathlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

SOURCES = pathlib.Path(__file__).parents[2] / "src"


def fingerprint() -> str:
    """A hash of the package's sources and of the versions that its outputs depend on."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*.py")):
        digest.update(path.relative_to(SOURCES).as_posix().encode())
        digest.update(path.read_bytes())
    for name in ("tensorflow", "tensorflow-cpu", "numpy", "keras"):
        try:
            digest.update(f"{name}=={version(name)}".encode())
        except PackageNotFoundError:
            continue
    return digest.hexdigest()


def _set(app: Sphinx, config: Config) -> None:
    config.cgrad_fingerprint = fingerprint()


def _helpers(app: Sphinx, docname: str, content: list[str]) -> None:
    """A page is read anew when a module beside it changes: its cells import from there."""
    for path in sorted(pathlib.Path(app.env.doc2path(docname)).parent.glob("*.py")):
        app.env.note_dependency(str(path), docname=docname)


def setup(app: Sphinx) -> dict[str, Any]:
    """A configuration value whose change makes Sphinx read every page anew, and each page's helper modules."""
    app.connect("source-read", _helpers)
    app.add_config_value("cgrad_fingerprint", "", "env", types=[str])
    app.connect("config-inited", _set)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
