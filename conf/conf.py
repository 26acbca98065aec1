"""Sphinx configuration; the pages are in ../docs: ``sphinx-build -c conf docs build/html``."""

import os
import pathlib
import sys
import warnings
from importlib.metadata import version as installed

from cgrad.faults import SITE

HERE = pathlib.Path(__file__).parent.resolve()
sys.path.insert(0, str(HERE / "extensions"))

# Kernels inherit these; after TensorFlow's import it is too late for them.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("PYTHONHASHSEED", "0")

# The last sphinx-autodoc-typehints for Python 3.11 uses an interface that Sphinx 10 will drop.
warnings.filterwarnings("ignore", message=r".*set_application.*")

project = "cgrad"
author = "The cgrad authors"
copyright = "2026, The cgrad authors"
release = version = installed("tf-cgrad")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_autodoc_typehints",  # after napoleon, which would lose the types otherwise
    "sphinx.ext.doctest",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "mathml",
    "freshness",
    "quiet_kernels",
    "public_types",
    "fault_pages",
    "take_away",
    "notfound.extension",
    "sphinxext.opengraph",
]
exclude_patterns = ["_build", "**/README.md"]
nitpicky = True
# Type variables have no page of their own.
nitpick_ignore_regex = [("py:class", r"(cgrad\.\w+\.)?[PRT]"), ("py:data", "Ellipsis")]

# --- pages ---------------------------------------------------------------------------------------

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_timeout = 120
nb_merge_streams = True
nb_output_stderr = "warn"
nb_render_markdown_format = "gfm"  # tables made by cells

html_math_renderer = "mathml"

# --- API -------------------------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Yields", "Source"]
typehints_defaults = "comma"
always_use_bars_union = True
typehints_use_signature = True
autodoc_class_signature = "separated"
autodoc_default_options = {"exclude-members": "__init__"}

# Local inventories only: the build asks no other host. Paths are relative to docs/.
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", "../conf/inventories/python.inv"),
    "numpy": ("https://numpy.org/doc/stable", "../conf/inventories/numpy.inv"),
    "matplotlib": ("https://matplotlib.org/stable", "../conf/inventories/matplotlib.inv"),
    "tensorflow": ("https://www.tensorflow.org/api_docs/python", "../conf/inventories/tensorflow.inv"),
}

# The doctest builder runs the docstrings' examples; each imports what it uses.
doctest_test_doctest_blocks = "default"
# Without a module's name TensorFlow finds no source for the functions that examples define.
doctest_global_setup = "__name__ = '__main__'"

# --- HTML ------------------------------------------------------------------------------------------

templates_path = [str(HERE / "_templates")]
html_theme = "furo"
# The one address of the site: canonical links, sitemap, previews; the reports of gradcheck lead there, too.
html_baseurl = ogp_site_url = SITE
ogp_social_cards = {"enable": False}
notfound_urls_prefix = "/en/latest/"
cgrad_repository = ""  # "owner/name": adds "Open in Colab" to the pages with cells
html_title = "cgrad"
html_static_path = [str(HERE / "_static")]
html_css_files = ["site.css"]
html_favicon = str(HERE / "_static" / "icon.svg")
html_js_files = [
    ("site.js", {"defer": "defer"}),
    ("try-it.js", {"defer": "defer"}),
    ("search-any.js", {"defer": "defer"}),
]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b57a4",
        "color-brand-content": "#0b57a4",
    },
    "dark_css_variables": {
        "color-brand-primary": "#8ec5ff",
        "color-brand-content": "#8ec5ff",
    },
    "source_edit_link": "",
    "source_view_link": "",
}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

# Functions in conf cannot be pickled by the environment on Python 3.11's Sphinx.
suppress_warnings = ["config.cache"]
