"""`prolip methods`: what each method is, trains and needs."""

from __future__ import annotations

import inspect
import re
import typing
from types import UnionType
from typing import TYPE_CHECKING, Any

import click

from prolip.cli.console import OUTPUT, console, escape, hint, print_json, program, table
from prolip.cli.parameters import argument, command, option

if TYPE_CHECKING:
    from prolip.methods import Method

SIZE = click.IntRange(1, 10**9)


@command("methods")
@argument("name", "[NAME]", "A method, to show its options.", required=False)
@option("--features", type=SIZE, default=2048, help="Do, the number of features before the image projection.")
@option("--dim", type=SIZE, default=1024, help="D, the dimension of the shared space.")
@option("--classes", type=SIZE, default=1000, help="K, the number of classes.")
@option("--shots", type=SIZE, default=16, help="N, images per class.")
@option(
    "--text-features", type=SIZE, default=512, help="Dt, the number of features before the text projection."
)
def list_methods(
    name: str | None, features: int, dim: int, classes: int, shots: int, text_features: int
) -> None:
    """List the methods, or show the options of one.

    With -v, also what each trains and needs. An open-class method can classify other classes, too. The
    defaults of the sizes are those of CLIP's RN50 on ImageNet with 16 images per class. Methods that add a
    bias to the zero-shot logits can be combined: `--method a+b` trains two of them together.

    $ prolip methods
    $ prolip methods prolip
    """
    from prolip import methods
    from prolip.methods.base import Shape

    shape = Shape(features, dim, classes, shots * classes, text_features)
    if name is not None:
        kind = methods.get(name)
        _show({**_describe(name, kind, shape), "options": _options(kind)})
        return
    found = [_describe(name, kind, shape) for name, kind in methods.available().items()]
    if OUTPUT.get().json:
        print_json(found)
        return
    if OUTPUT.get().verbose:
        columns = ["method", "open-class", "trains", "parameters", "needs"]
        table(None, columns, [[m["name"], *_facts(m)] for m in found], right=9)
        return
    for title, research in ((None, False), ("For experiments", True)):
        rows = [[m["name"], m["summary"]] for m in found if methods.get(m["name"]).research == research]
        table(title, ["method", "what it is"], rows, right=9)
    hint(f"\nOptions of one: [bold]{escape(program())} methods NAME[/]")


def _describe(name: str, kind: type[Method], shape: Any) -> dict[str, Any]:
    """Return what `methods --json` prints of a method."""
    from prolip.core import UsageError

    method = kind()
    try:
        count: int | None = method.count(shape)
    except UsageError:  # it trains inside a tower, whose size is not part of a shape
        count = None
    known = {field: getattr(method, field) for field in ("summary", "open_class", "size")}
    return {"name": name, **known, "parameters": count, "needs": method.needs.describe()}


def _facts(found: dict[str, Any]) -> list[str]:
    """Format whether a method is open-class, what it trains, how many parameters, and what it needs."""
    count = "-" if found["parameters"] is None else f"{found['parameters']:,}"
    return ["yes" if found["open_class"] else "no", found["size"], count, ", ".join(found["needs"])]


def _show(found: dict[str, Any]) -> None:
    """Print a method and its options."""
    if OUTPUT.get().json:
        print_json(found)
        return
    console().print(f"[bold]{escape(found['name'])}[/]: {escape(found['summary'])}")
    labels = ("open-class", "trains", "parameters", "needs")
    table(None, ["", ""], [list(pair) for pair in zip(labels, _facts(found), strict=True)], right=9)
    console().print()
    if not found["options"]:
        console().print("It has no options.")
        return
    rows = [[o["name"], o["type"], _typed(o["default"]), o["help"]] for o in found["options"]]
    table(None, ["option", "type", "default", ""], rows, right=9)
    line = f"{program()} fit DIR -o MODEL --method {found['name']} -O NAME=VALUE"
    hint(f"\nSet one: [bold]{escape(line)}[/]")


def _typed(value: Any) -> str:
    """Format a default as -O takes it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _options(kind: type[Method]) -> list[dict[str, Any]]:
    """Return the options of a method, with types, defaults, and the descriptions in its docstrings."""
    from prolip.methods.base import plain

    method, described, types = kind(), _described(kind), typing.get_type_hints(kind)
    found: list[dict[str, Any]] = []
    for name in kind.options():
        union = isinstance(types[name], UnionType) or typing.get_origin(types[name]) is typing.Union
        kinds = typing.get_args(types[name]) if union else (types[name],)
        words = " or ".join(
            getattr(each, "__name__", str(each)).removesuffix("Type").lower() for each in kinds
        )
        default = plain(getattr(method, name))
        found.append({"name": name, "type": words, "default": default, "help": described.get(name, "")})
    return found


def _described(kind: type) -> dict[str, str]:
    """Return the descriptions of parameters in the docstrings of a class and of its bases."""
    found: dict[str, str] = {}
    for each in kind.__mro__:
        text = inspect.cleandoc(vars(each).get("__doc__") or "")
        section = text.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
        for names, words in re.findall(r"^(\S.*)\n((?:[ ]+.*\n?)+)", section, re.MULTILINE):
            for name in names.split(", "):
                found.setdefault(name, " ".join(words.split()))
    return found
