"""The documentation: plain Markdown, the Python API from docstrings, the command line from its help."""

import re
from typing import Any

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from prolip import __version__
from prolip.cli import root

project = "prolip"
author = "The prolip developers"
copyright = "2026, The prolip developers"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"prolip {__version__}"
html_favicon = "../src/prolip/app/static/icon.svg"
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
default_role = "code"
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = ["misc.highlighting_failure"]
nitpick_ignore_regex = [("py:.*", ".*")]  # types in signatures; links between pages are always checked
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

# Files of the repository that are pages here: links to them lead to these.
OUTSIDE = {"README.md": "index", "CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changelog"}


def prepare(app: Sphinx, docname: str, source: list[str]) -> None:
    """Make the navigation from the lists of index.md; resolve links to files outside the folder."""
    text = source[0]
    for name, page in OUTSIDE.items():
        text = re.sub(rf"\]\((?:\.\./)+{re.escape(name)}(#install)?", f"](/{page}.md", text)
    if docname == "index":
        for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
            pages = re.findall(r"^- \[(.+?)\]\(([\w/-]+)\.md\)", section, re.MULTILINE)
            caption = section.partition("\n")[0]
            entries = "\n".join(f"{title} </{page}>" for title, page in pages)
            if not pages:
                continue
            text += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"
    source[0] = text


class Commands(SphinxDirective):
    """Every command with its help, as the terminal prints it."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each command."""
        sections: list[nodes.Node] = []
        for name, command in root.commands.items():
            below = command.commands if isinstance(command, click.Group) else {}
            parts = [(name, command), *((f"{name} {each}", below[each]) for each in below)]
            section = nodes.section(ids=[f"prolip-{name}"], names=[name])
            section += nodes.title("", f"prolip {name}")
            for path, each in parts:
                context = click.Context(
                    each, info_name=f"prolip {path}", max_content_width=96, terminal_width=96
                )
                text = click.unstyle(each.get_help(context))
                section += nodes.literal_block(text, text, language="text")
            sections.append(section)
        return sections


def setup(app: Sphinx) -> dict[str, Any]:
    """Add what is above."""
    app.connect("source-read", prepare)
    app.add_directive("prolip-commands", Commands)
    return {"parallel_read_safe": True}
