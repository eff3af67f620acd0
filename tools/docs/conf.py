"""Configuration of Sphinx for the docs site: `make docs`. tools/build_docs.py prepares the pages."""

from __future__ import annotations

import holdbeat

project = "Holdbeat"
author = "Holdbeat contributors"
release = version = holdbeat.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"Holdbeat {version}"
html_show_copyright = False

# Links such as page.md#a-heading use the anchors that GitHub makes.
myst_heading_anchors = 6
# A block may show output with parts left out ("…"), which no lexer can read.
suppress_warnings = ["misc.highlighting_failure"]

# Docstrings mark code with one backtick, as Markdown does.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 90
