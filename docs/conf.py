"""How Sphinx builds the documentation; ``make docs`` runs it."""

import pathlib
import shutil
import sys

from docutils import nodes

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "extensions"))
sys.path.insert(0, str(ROOT))

from balson_jax import __version__

# Notebooks live where users run them. Sphinx wants its sources in one folder.
shutil.copytree(ROOT / "notebooks", HERE / "notebooks", ignore=shutil.ignore_patterns("*.py"), dirs_exist_ok=True)

project = "balson_jax"
author = "The balson_jax developers"
project_copyright = "the balson_jax developers"
release = version = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxcontrib.bibtex",
    "sphinx_copybutton",
    "mathml",
]
exclude_patterns = ["figures/*.py", "**/.ipynb_checkpoints", "notebooks/figures"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks are shown as they are stored; tests run them
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "author_year"

copybutton_prompt_text = ">>> |\\.\\.\\. |\\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"balson_jax {release}"
html_extra_path = ["llms.txt"]
html_static_path = ["_static"]
html_css_files = ["balson.css"]
html_copy_source = True
html_show_sphinx = False

html_theme_options = {"navigation_with_keys": True}


def trim(_app, doctree):
    """Drop the empty line that doctest needs before a closing fence."""
    for block in doctree.findall(nodes.literal_block):
        if block.rawsource == block.astext():
            block.rawsource = block.rawsource.rstrip()
            block[:] = [nodes.Text(block.rawsource)]


PLAIN = {}


def keep_plain(_app, what, name, _object, _options, lines):
    """Remember the docstring of an attribute: Napoleon takes what stands before its first colon for a type."""
    if what in ("attribute", "property"):
        PLAIN[name] = list(lines)


def restore_plain(_app, _what, name, _object, _options, lines):
    """Put it back."""
    if name in PLAIN:
        lines[:] = PLAIN.pop(name)


def setup(app):
    """Register what docstrings and pages go through."""
    app.connect("autodoc-process-docstring", keep_plain, priority=400)
    app.connect("autodoc-process-docstring", restore_plain, priority=600)
    app.connect("doctree-read", trim)
