"""Sphinx: `make docs` builds these pages."""

from pathlib import Path
from runpy import run_path

_ROOT = Path(__file__).parents[1]

project = "Subscriber gateway"
author = "The authors of gateway-api"
version = release = run_path(str(_ROOT / "gateway_contract" / "version.py"))["VERSION"]
extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
# Parts of pages, which include them.
exclude_patterns = ["reference/operations/*"]
html_theme = "furo"
html_title = f"Subscriber gateway {version}"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["style"]
html_css_files = ["site.css"]
html_js_files = [("code.js", {"defer": "defer"})]
html_search_scorer = str(Path(__file__).with_name("style") / "scorer.js")
templates_path = ["templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "live-page.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
