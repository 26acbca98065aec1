"""The questions people ask and the faults gradcheck names, each with its page: ``python tests/site/questions.py``.

Reads the built site (build/html) and writes docs/about/tables/questions.txt and docs/about/tables/fault-pages.txt.
"""

from __future__ import annotations

import pathlib
import re

from bs4 import BeautifulSoup

ROOT = pathlib.Path(__file__).parents[2]
RECIPES = ROOT / "docs" / "recipes"
TABLES = ROOT / "docs" / "about" / "tables"
QUESTIONS = 25  # ranked by how often they were met in public


def ranks() -> dict[int, list[str]]:
    """The pages that answer each question; the first is the one it is named after."""
    found: dict[int, list[str]] = {}
    listed = re.findall(r"<([\w-]+)>$", (RECIPES / "index.md").read_text(), re.M)
    for name in listed:
        (rank,) = re.findall(r"^question: (\d+)$", (RECIPES / f"{name}.md").read_text(), re.M)
        found.setdefault(int(rank), []).append(name)
    return dict(sorted(found.items()))


def page(site: pathlib.Path, name: str) -> BeautifulSoup:
    """One built page."""
    return BeautifulSoup((site / f"{name}.html").read_text(), "html.parser")


def title(parsed: BeautifulSoup) -> str:
    """The page's heading."""
    return parsed.select_one("h1").get_text().rstrip("\N{PILCROW SIGN}").replace("|", "\\|")


def result(parsed: BeautifulSoup) -> str:
    """What the first cell with an output shows, its first line."""
    lines = parsed.select_one("div.cell_output").get_text().strip().splitlines()
    return " ".join(lines[0].split())[:70] + (" ..." if len(lines) > 1 or len(lines[0]) > 70 else "")


def questions(site: pathlib.Path) -> str:
    """One row for each page that answers a question."""
    rows = ["| rank | question | page | its first cell shows |", "|---|---|---|---|"]
    for rank, names in ranks().items():
        for name in names:
            parsed = page(site, f"recipes/{name}")
            shown = result(parsed).replace("|", "\\|").replace("`", "'")
            rows.append(f"| {rank} | {title(parsed)} | [{name}](../recipes/{name}.md) | `{shown}` |")
    return "\n".join(rows) + "\n"


def faults(site: pathlib.Path) -> str:
    """One row for each fault: what its page reports first."""
    from cgrad.faults import CATALOGUE

    rows = ["| fault | page | reported first there |", "|---|---|---|"]
    for entry in CATALOGUE:
        report = page(site, f"faults/{entry.name}").select_one(".report").get_text()
        first = re.search(r"[\w-]+ \(CG\d+\)", report)
        rows.append(f"| {entry.name} | [{entry.code}](../faults/{entry.name}.md) | {first[0] if first else 'none'} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    built = ROOT / "build" / "html"
    (TABLES / "questions.txt").write_text(questions(built))
    (TABLES / "fault-pages.txt").write_text(faults(built))
