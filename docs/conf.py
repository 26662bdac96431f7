"""How the documentation site is built: `make site` writes it to `site/`.

The pages are the Markdown files of this folder, which GitHub shows as they are. Two kinds of content exist on the site
alone: the Python reference, from docstrings, and the lists of commands and config fields (`reference_pages.py`).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))
from reference_pages import REFERENCE  # beside this file

import fedeas

project = "FedEAS"
author = "The FedEAS authors"
release = fedeas.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["images"]
html_theme = "furo"
html_copy_source = False
html_title = f"FedEAS {release}"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

default_role = "code"  # docstrings write `name`, as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in ("Table", "ArrayLike", "FloatArray", "IntArray")}  # not written out
maximum_signature_line_length = 100

myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300

ROOT = Path(__file__).parent.parent
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files of the root that are pages of the site, and the pages that show them."""

WHOLE = re.compile(r"<!-- page (\S+) -->")
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)#:]+)(?P<anchor>#[^)]*)?\)")


def _prepare(app: Sphinx, page: str, source: list[str]) -> None:
    """Fill in the reference and whole files of the root, and rewrite links that leave this folder."""
    for marker, content in REFERENCE.items():
        if marker in source[0]:
            source[0] = source[0].replace(marker, content())
    text = LINK.sub(lambda link: _on_the_site(link, app.srcdir / page), source[0])
    source[0] = WHOLE.sub(lambda marker: _whole(marker[1]), text)


def _whole(name: str) -> str:
    """A file of the root, with links that work from this folder."""
    text = (ROOT / name).read_text().replace("](docs/images/", "](images/")
    return LINK.sub(lambda link: _on_the_site(link, ROOT / name), text)


def _on_the_site(link: re.Match[str], page: Path) -> str:
    """The link for the site: to its page, or the path in the repository of a file that the site does not have."""
    target = (page.parent / link["target"]).resolve()
    if target.is_relative_to(ROOT / "docs"):
        return f"[{link['text']}](/{target.relative_to(ROOT / 'docs')}{link['anchor'] or ''})"
    path = str(target.relative_to(ROOT))
    if path in PAGES:
        return f"[{link['text']}](/{PAGES[path]}{link['anchor'] or ''})"
    return link["text"] if path in link["text"] else f"{link['text']} (`{path}`)"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _prepare)
