"""The families of cases import their registry by name, and hold no tests of their own."""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
collect_ignore = [path.name for path in HERE.glob("*.py") if not path.name.startswith(("test_", "conftest"))]
