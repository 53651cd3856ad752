"""Commands for researchers."""

from __future__ import annotations

from typing import Annotated

import typer

from prolip.cli.console import print_json, table


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("methods")(list_methods)


def list_methods(
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the methods, what each trains, and whether it can still answer for other classes."""
    from prolip import methods

    found = [
        {"name": name, "summary": cls.summary, "open_class": cls.open_class}
        for name, cls in ((name, methods.get(name)) for name in methods.names())
    ]
    if json:
        print_json(found)
        return
    rows = [[str(m["name"]), "yes" if m["open_class"] else "no", str(m["summary"])] for m in found]
    table(None, ["method", "open-class", ""], rows, right=9)
