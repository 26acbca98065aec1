"""What a reader takes along: each page as Markdown, each page with cells as a notebook; an index of them for machines.

A notebook runs wherever tf-cgrad is installed: a module that lies beside its page is written by a cell of its own.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from typing import Any

import nbformat
from docutils import nodes
from myst_nb.core.read import read_myst_markdown_notebook
from sphinx.application import Sphinx

CELL = "```{code-cell}"
FRONT = re.compile(r"\A---\n.*?\n---\n+", re.S)
TITLE = re.compile(r"^# (.+)$", re.M)


def source(app: Sphinx, docname: str) -> str:
    """The page as its author wrote it."""
    return pathlib.Path(app.env.doc2path(docname)).read_text()


def helpers(folder: pathlib.Path, code: str) -> Iterator[pathlib.Path]:
    """The modules beside a page that its cells import, and those that these import, each before its user."""
    for name in re.findall(r"^\s*(?:from|import) (\w+)", code, re.M):
        path = folder / f"{name}.py"
        if path.exists():
            yield from helpers(folder, path.read_text())
            yield path


def notebook(text: str, folder: pathlib.Path) -> nbformat.NotebookNode:
    """The page as a notebook without outputs; the same bytes for the same page."""
    made = read_myst_markdown_notebook(text, code_directive="{code-cell}", raw_directive="{raw-cell}")
    code = "\n".join(cell.source for cell in made.cells if cell.cell_type == "code")
    for path in reversed(list(dict.fromkeys(helpers(folder, code)))):
        made.cells.insert(0, nbformat.v4.new_code_cell(f"%%writefile {path.name}\n{path.read_text().rstrip()}"))
    for number, cell in enumerate(made.cells):
        cell["id"] = f"cell-{number}"
    made.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return made


def markdown(text: str) -> str:
    """The page as plain Markdown, to read or to paste: cells become blocks of Python."""
    text = FRONT.sub("", text)
    text = re.sub(r"^```\{code-cell\}.*\n(:.*\n)*", "```python\n", text, flags=re.M)
    text = re.sub(r"^```\{toctree\}.*?^```\n?", "", text, flags=re.M | re.S)
    text = re.sub(r"\{[\w:]+\}`~?([^`<]*?)(?: <[^`]*>)?`", r"\1", text)  # roles
    return text.strip() + "\n"


def _offer(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document) -> None:
    """Links at the end of each page that has a source."""
    if doctree is None or pagename not in app.env.all_docs:
        return
    name = pagename.rsplit("/", 1)[-1]
    links = [f'<a href="{name}.md" download>Markdown</a>']
    if CELL in source(app, pagename):
        links.insert(0, f'<a href="{name}.ipynb" download>Notebook</a>')
        if app.config.cgrad_repository:
            place = f"https://colab.research.google.com/github/{app.config.cgrad_repository}/blob/gh-pages"
            links.insert(1, f'<a href="{place}/{pagename}.ipynb">Open in Colab</a>')
    context["body"] += f'<p class="take-away">Take this page along: {", ".join(links)}</p>'


def _write(app: Sphinx, error: Exception | None) -> None:
    """The files that the links lead to, and llms.txt and sitemap.xml."""
    if error is not None or app.builder.name != "html":
        return
    index, addresses = [f"# {app.config.project}", ""], []
    for docname in sorted(app.env.found_docs):
        text, target = source(app, docname), pathlib.Path(app.outdir) / docname
        target.with_suffix(".md").write_text(markdown(text))
        if CELL in text:
            made = notebook(text, pathlib.Path(app.env.doc2path(docname)).parent)
            nbformat.write(made, target.with_suffix(".ipynb"))
        title = TITLE.search(text)
        about = re.search(r'^    description: "?(.*?)"?$', text, re.M)
        line = f"- [{title[1] if title else docname}]({app.config.html_baseurl}{docname}.md)"
        index.append(f"{line}: {about[1]}" if about else line)
        addresses.append(f"<url><loc>{app.config.html_baseurl}{docname}.html</loc></url>")
    out = pathlib.Path(app.outdir)
    (out / "llms.txt").write_text("\n".join(index) + "\n")
    space = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    (out / "sitemap.xml").write_text(
        f'<?xml version="1.0"?>\n<urlset {space}>\n' + "\n".join(addresses) + "\n</urlset>\n"
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the links, the files, and the one setting: the repository (owner/name) for "Open in Colab"."""
    app.add_config_value("cgrad_repository", "", "html", types=[str])
    app.connect("html-page-context", _offer)
    app.connect("build-finished", _write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
