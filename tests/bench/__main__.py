"""Every ratio of the project in one command, and two runs compared.

    python tests/bench run [define gradcheck audit memory peers] [--python INTERPRETER] [--seeds N]
    python tests/bench compare OLD.json NEW.json

``run`` starts each benchmark in a process of its own, prints what it finds and stores it under today's date in
tests/bench/results. INTERPRETER is one that has torch and jax; without it the peers are left out. ``compare`` prints
every number that stands in both files, and the quotient.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / "results"
ALL = ("define", "gradcheck", "audit", "memory", "peers")


def run(names: list[str], interpreter: str | None, seeds: int) -> pathlib.Path:
    """Runs benchmarks one after the other; returns the file with what they found."""
    found: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "versions": {name: installed(name) for name in ("tensorflow", "tensorflow-cpu", "keras", "numpy")},
    }
    options = {"gradcheck": ["--seeds", str(seeds)], "peers": ["--python", str(interpreter)]}
    for name in names:
        if name == "peers" and interpreter is None:
            print("peers: left out, --python names no interpreter", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:
            kept = pathlib.Path(folder) / "result.json"
            script = [sys.executable, str(HERE / f"{name}.py"), *options.get(name, []), "--json", str(kept)]
            print(f"\n# {name}", flush=True)
            subprocess.run(script, check=True)
            found[name] = json.loads(kept.read_text())
    target = RESULTS / f"{found['date']}.json"
    target.write_text(json.dumps(found, indent=2) + "\n")
    return target


def installed(name: str) -> str | None:
    """The version of a distribution, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def numbers(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Every number in a result, with the place it stands at."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(inner, f"{place} / {key}" if place else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from numbers(inner, f"{place} [{index}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place, float(value)


def compare(old: Any, new: Any) -> str:
    """A table of what stands in both."""
    before, after = dict(numbers(old)), dict(numbers(new))
    rows = ["| what | before | after | after / before |", "|---|---|---|---|"]
    for place in (place for place in before if place in after):
        quotient = f"{after[place] / before[place]:.2f}" if before[place] else "-"
        rows.append(f"| {place} | {before[place]:g} | {after[place]:g} | {quotient} |")
    return "\n".join(rows)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="tests/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("run")
    start.add_argument("names", nargs="*", default=list(ALL), metavar="NAME", help=", ".join(ALL))
    start.add_argument("--python")
    start.add_argument("--seeds", type=int, default=1000)
    pair = commands.add_parser("compare")
    pair.add_argument("old", type=pathlib.Path)
    pair.add_argument("new", type=pathlib.Path)
    options = parser.parse_args()
    if options.command == "compare":
        print(compare(*(json.loads(path.read_text()) for path in (options.old, options.new))))
        return
    unknown = sorted({*options.names} - {*ALL})
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(ALL)}")
    print(f"\nkept in {run(options.names, options.python, options.seeds).name}")


if __name__ == "__main__":
    main()
