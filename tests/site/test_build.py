"""The extensions of our own: bad TeX stops a build, sources have a fingerprint."""

from __future__ import annotations

import pathlib
import sys

import pytest

EXTENSIONS = pathlib.Path(__file__).parents[2] / "conf" / "extensions"
sys.path.insert(0, str(EXTENSIONS))

mathml = pytest.importorskip("mathml", reason="the extra 'docs' is not installed")
freshness = pytest.importorskip("freshness")


def test_a_formula_becomes_mathml_with_its_tex_kept():
    found = mathml.convert(r"u^\T J = \inner{u}{y}", display=True)
    assert found.startswith("<math")
    assert 'display="block"' in found
    assert r"u^\T J" in found


def test_an_overline_is_one_that_stretches():
    assert "\u203e" in mathml.convert(r"\overline{f(z)}", display=False)
    assert "\u0332" in mathml.convert(r"\underline{f(z)}", display=False)


@pytest.mark.parametrize("tex", [r"\frac{a}{b", r"\fra{a}{b}", r"\begin{pmatrix} a \end{matrix}", r"a^b^c"])
def test_bad_tex_raises_with_its_place(tex):
    with pytest.raises(mathml.BadTeX) as caught:
        mathml.convert(tex, display=False, place="docs/page.md:12")
    assert str(caught.value).startswith("docs/page.md:12: ")
    assert tex in str(caught.value)


def test_bad_tex_stops_a_build_and_says_where(tmp_path, capsys):
    from sphinx.cmd.build import main

    source = tmp_path / "docs"
    source.mkdir()
    (source / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(EXTENSIONS)!r})\n"
        "extensions = ['myst_parser', 'mathml']\nhtml_math_renderer = 'mathml'\n"
        "myst_enable_extensions = ['dollarmath']\n"
    )
    page = source / "index.md"
    page.write_text("# Title\n\n$x^2$\n")
    assert main(["-q", str(source), str(tmp_path / "build" / "html")]) == 0
    page.write_text("# Title\n\n$\\frac{x}{2$\n")
    assert main(["-q", str(source), str(tmp_path / "build" / "html")]) != 0
    assert "index.md:3" in capsys.readouterr().err


def test_the_fingerprint_follows_the_sources(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(freshness, "SOURCES", tmp_path)
    before = freshness.fingerprint()
    assert freshness.fingerprint() == before
    (tmp_path / "a.py").write_text("x = 2\n")
    assert freshness.fingerprint() != before
