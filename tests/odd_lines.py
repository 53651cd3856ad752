"""Odd command lines: every option of every command with values that cannot be meant.

`places` has what a command needs to get as far as its options: a saved model, a folder of images, somewhere
to write. Options that somebody adds are found by themselves; for words (a method, a template) a line here
says what cannot be meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from pictures import COLOURS, blotch
from prolip.cli import root
from prolip.cli.options import FilePath

NUMBERS = ["x", "1.5", "nan", "1e400", "-7", "0x10", "\uff19x", "1_"]
FRACTIONS = ["x", "nan", "inf", "-0.1", "1e400", "2"]
PATHS = ["x" * 300, "~nosuchuser/x", "/dev/null/x", "y/" * 3000]
WORDS: dict[str, list[str]] = {
    "source": [*PATHS, "nowhere", "https://example.org/a.zip", "/dev/zero", "-"],
    "sources": [*PATHS, "nowhere.jpg", "s3://bucket/a", "~nosuchuser/x.jpg"],
    "model": ["nosuch", "open_clip:", "hf:", "hf:../../etc", "offline:x", "x" * 300, "\x1b[31m"],
    "method": ["nosuch", "prolip+", "+", "a:b:c", "os:system", "x" * 300, "\x1b]0;x\x07"],
    "lam": ["-1", "nan", "inf", "1e400", "x", "1/N^3"],
    "template": ["{:>2000000000}", "{0.__class__}", "{{}} {:>2000000000}", "none at all", "{} {}"],
    "options": ["x", "=1", "x=", "nosuch=1", "lam=nan", "lam=-Infinity", "seed=-1"],
    "device": ["nosuch", "abacus:0", "x" * 300],
    "against": ["nosuch"],
    "name": ["nosuch", "x" * 300],
    "datasets": ["nosuch", ",", "photos,", "x" * 300],
    "methods": ["nosuch", "x" * 300],
    "shots": ["0", "-1", "x", "1e9"],
    "seeds": ["0", "-1", "x", "5-1", "1-", "1,,2"],
    "only": ["nosuch"],
    "rename": ["x", "=", "red=", "=red", "nosuch=x"],
    "host": ["nosuch.invalid", "not a host"],
}


def commands() -> dict[tuple[str, ...], Any]:
    """Every command by the words that call it."""
    found: dict[tuple[str, ...], Any] = {}
    waiting: list[tuple[tuple[str, ...], Any]] = [((), root)]
    while waiting:
        path, command = waiting.pop()
        if hasattr(command, "commands"):
            waiting += [((*path, name), inner) for name, inner in command.commands.items()]
        else:
            found[path] = command
    return dict(sorted(found.items()))


def odd_values(option: Any) -> list[str]:
    """What cannot be meant by this option or argument: for every one that has a value, an empty one."""
    kind = option.type
    if getattr(option, "is_flag", False):
        return []
    if option.name in WORDS and not isinstance(kind, click.IntRange):
        return ["", *WORDS[option.name]]
    if isinstance(kind, FilePath):
        wrong = [f"out.{suffix}" for suffix in ("html", "csv", "exe") if f".{suffix}" not in kind.suffixes]
        return ["", *PATHS, *(wrong if kind.suffixes else [])]
    if isinstance(kind, click.Choice):
        return ["", "nosuch", ",".join(kind.choices), kind.choices[0].upper()]
    if isinstance(kind, click.FloatRange):
        return ["", *FRACTIONS, *(["1"] if kind.max_open else [])]
    if isinstance(kind, click.IntRange):
        beyond = [] if kind.max is None else [str(kind.max + 1), "9" * 30]
        return ["", *NUMBERS, *beyond, *([] if kind.min is None else [str(kind.min - 1), "-" + "9" * 30])]
    return [""]


def prepare(root: Path) -> dict[str, str]:
    """Three colours of two pictures each, and what every parameter that is needed may be; `root` is empty.

    The model is to be put at `path`.
    """
    for k, (name, colour) in enumerate(COLOURS.items()):
        (root / "photos" / name).mkdir(parents=True)
        for i in range(2):
            blotch(colour, 10 * k + i, size=8).save(root / "photos" / name / f"{i}.png")
    names = {
        "path": "model", "models": "model", "source": "photos", "sources": "photos",
        "out": "out", "predict out": "out.csv", "eval out": "out.csv", "check out": "out.csv",
        "embed out": "out.npz",
        "report out": "out.html", "curve out": "out.html", "plot out": "out.svg",
        "results": "results.sqlite", "folder": "project",
    }  # fmt: skip
    words = {
        "name": "validation_free",
        "to": "onnx",
        "port": "0",
    }
    return {**{key: str(root / name) for key, name in names.items()}, **words, "root": str(root)}


def usual(path: tuple[str, ...], command: Any, places: dict[str, str], without: str = "") -> list[str]:
    """The command with what it cannot do without, but for the one parameter that is tried."""
    words = [*path]
    for option in command.params:
        value = places.get(f"{path[-1]} {option.name}", places.get(option.name))
        # A server that starts in spite of its odd option takes a free port and a project of its own.
        needed = option.required or option.name in ("source", "out", "results", "port", "folder")
        if option.name == without or not needed:
            continue
        if option.param_type_name == "argument":
            words.append(str(value))
        else:
            words += [option.opts[0], *([] if option.is_flag else [str(value)])]
    return words


def every_line(places: dict[str, str]) -> Iterator[list[str]]:
    """Each parameter of each command with each of its odd values, all else as usual."""
    for path, command in commands().items():
        for option in command.params:
            for value in odd_values(option):
                if option.param_type_name == "option":
                    yield [*usual(path, command, places, option.name), option.opts[0], value]
                    continue
                line = usual(path, command, {**places, f"{path[-1]} {option.name}": value})
                yield line if value in line else [*line, value]
