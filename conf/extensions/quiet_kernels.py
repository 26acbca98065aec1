"""Kernels start without a word: newer ones print a warning about unencrypted transport for each."""

from __future__ import annotations

from typing import Any

from jupyter_client.manager import KernelManager
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Lets the kernel manager choose encryption where it knows of it."""
    trait = KernelManager.class_traits().get("transport_encryption")
    if trait is not None:
        trait.default_value = "auto"
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
