"""Settings of the documentation site; `scripts/docs` builds it."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_site"))

import api_pages  # noqa: E402
import page_texts  # noqa: E402
import plain_docstrings  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

from motet import __version__  # noqa: E402

project = "Motet"
author = "The Motet developers"
copyright = "The Motet developers"  # noqa: A001  # the name that Sphinx reads
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["README.md", "_site", "_build", "tutorials/*.ipynb", "**.ipynb_checkpoints"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
default_role = "code"  # docstrings write `name`
nitpicky = False
suppress_warnings = ["myst.strikethrough"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [
    ("Attributes", "params_style"),  # fields are arguments, too
    ("Shared arguments", "params_style"),  # of several functions of a class
]
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"Motet {release}"
html_static_path = ["_site/static"]
html_css_files = ["motet.css"]
html_search_scorer = str(HERE / "_site/search.js")
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#2453a6", "color-brand-content": "#2453a6"},
    "dark_css_variables": {"color-brand-primary": "#8ab4f8", "color-brand-content": "#8ab4f8"},
}
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False


def setup(app: Sphinx) -> None:
    """Write the API pages, escape docstrings before napoleon, and collect texts for search."""
    app.connect("builder-inited", lambda app: api_pages.write(Path(app.srcdir) / "reference/api"))
    app.connect("autodoc-process-docstring", plain_docstrings.process, priority=400)
    app.connect("autodoc-process-signature", plain_docstrings.plain_signature)
    app.connect("build-finished", page_texts.write)
