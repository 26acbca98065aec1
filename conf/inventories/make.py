"""Makes the inventories that the documentation links through, from the lists beside this file.

    python conf/inventories/make.py

Written down by hand: TensorFlow publishes no inventory, and the build asks no other host.
"""

import pathlib
import zlib

HERE = pathlib.Path(__file__).parent
HEAD = (
    "# Sphinx inventory version 2\n# Project: {name}\n# Version: \n"
    "# The remainder of this file is compressed using zlib.\n"
)


def inventory(name: str) -> bytes:
    """The inventory of one project in Sphinx's format, version 2."""
    lines = [line for line in (HERE / f"{name}.txt").read_text().splitlines() if line and not line.startswith("#")]
    entries = "".join(f"{key} {role} 1 {address} -\n" for key, role, address in map(str.split, lines))
    return HEAD.format(name=name).encode() + zlib.compress(entries.encode(), 9)


if __name__ == "__main__":
    for source in sorted(HERE.glob("*.txt")):
        source.with_suffix(".inv").write_bytes(inventory(source.stem))
