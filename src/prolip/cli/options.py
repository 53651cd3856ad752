"""How commands, options and arguments are declared, and the options that several commands share.

Text and paths of every option refuse an empty value: it is not the same as an absent one.

The options of a fit are those that `api.recipe` declares: `fit_options` adds some of them to a command, which
gets them as one dictionary, the arguments of `FewShotClassifier`. Other decorators, like `@tables`, add
options that the command gets as one value.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prolip.api.recipe import GROUPS, IMAGES, OPTIONS
from prolip.api.recipe import OUTPUT as OUTPUT_GROUP
from prolip.app import PROJECT_FILE
from prolip.cli.console import OUTPUT, bar, detail

if TYPE_CHECKING:
    from prolip import FewShotClassifier


class NonEmptyText(click.ParamType):
    """Text; an empty value is refused, because it is not the same as an absent one."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text as it is."""
        return value if value.strip() else self.fail("the value is empty", param, ctx)


class FilePath(click.Path):
    """A path with one of these suffixes, if there are any; whether a file is there does not matter."""

    def __init__(self, *suffixes: str) -> None:
        super().__init__()
        self.suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if value == "":  # Path("") is the current folder
            self.fail("the value is empty", param, ctx)
        try:
            path = Path(value).expanduser()
        except RuntimeError as error:  # no such user
            self.fail(f"{value}: {error}", param, ctx)
        if self.suffixes and path.suffix.lower() not in self.suffixes:
            self.fail(f"{value!r} does not end in {' or '.join(self.suffixes)}", param, ctx)
        return path


TEXT, PATH, HTML, CSV = NonEmptyText(), FilePath(), FilePath(".html"), FilePath(".csv")
FRACTION, POSITIVE = click.FloatRange(0, 1, max_open=True), click.IntRange(min=1)


class Argument(click.Argument):
    """An argument with a help text, which only the newest versions of click have."""

    def __init__(self, *declarations: Any, about: str = "", **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.about = about


class Option(click.Option):
    """An option with a group, under which the help of a command lists it."""

    def __init__(self, *declarations: Any, group: str = "Options", **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.group = group


class _WithErrors(click.Command):
    """A command whose errors name options as the command has them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        from prolip.core.errors import Parameter, ProlipError, UsageError

        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise click.Abort from error
        except ProlipError as error:
            kind = click.UsageError if isinstance(error, UsageError) else click.ClickException
            parts = (spell(self, part) if isinstance(part, Parameter) else str(part) for part in error.args)
            raise kind("".join(parts)) from error


class Command(_WithErrors):
    """A command with the options that every command has, whose help describes its arguments, too."""

    def __init__(self, name: str, params: list[click.Parameter], json: bool, **attributes: Any) -> None:
        params = [*params, *([json_flag()] if json else []), *_everywhere(hidden=True)]
        super().__init__(name, params=params, **attributes)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments, then the options in groups."""
        if arguments := [
            (each.human_readable_name, each.about) for each in self.params if hasattr(each, "about")
        ]:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        for title in ("Options", *GROUPS):
            group = [each for each in options if getattr(each, "group", OUTPUT_GROUP) == title]
            if shown := [record for each in group if (record := each.get_help_record(ctx))]:
                with formatter.section(title):
                    formatter.write_dl(shown)


class Group(_WithErrors, click.Group):
    """A group of commands that are listed in their order; without a command it prints its help."""

    def __init__(self, name: str, **attributes: Any) -> None:
        attributes = {"callback": _print_help, "params": _everywhere(), **attributes}
        super().__init__(name, invoke_without_command=True, **attributes)
        self.sections: dict[str, list[str]] = {}  # names of commands by their title; none for a plain list

    def add_sections(self, sections: Mapping[str, Sequence[click.Command]]) -> None:
        """Add commands under titles of the help."""
        for title, commands in sections.items():
            self.sections[title] = [str(each.name) for each in commands]
            for each in commands:
                self.add_command(each)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, under a title for each group of them."""
        width = max(map(len, self.commands))
        for title, names in (self.sections or {"Commands": list(self.commands)}).items():
            with formatter.section(title):
                rows = [(name.ljust(width), self.commands[name].get_short_help_str(90)) for name in names]
                formatter.write_dl(rows)


@click.pass_context
def _print_help(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def option(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """Declare an option with a value; text must not be empty."""
    if attributes.get("multiple"):
        attributes["help"] = f"{attributes['help']} May be repeated."
    return click.option(*names, cls=Option, **{"type": TEXT, **attributes})


def flag(*names: str, help: str, group: str = "Options") -> Callable[[Any], Any]:
    """Declare an option without a value."""
    return click.option(*names, cls=Option, is_flag=True, help=help, group=group)


def argument(name: str, metavar: str, about: str, **attributes: Any) -> Callable[[Any], Any]:
    """Declare an argument; text must not be empty."""
    attributes = {"type": TEXT, "metavar": metavar, "about": about, **attributes}
    # Created for each command: click 8.1.0 forgets `cls` after the first.
    return lambda function: click.argument(name, cls=Argument, **attributes)(function)


def command(name: str, cls: type[click.Command] = Command, json: bool = True) -> Callable[[Any], Any]:
    """Make a command of a function; lines of its docstring that begin with $ are its examples."""

    def register(function: Callable[..., None]) -> click.Command:
        text = re.sub(r"\n\n(?=\$ )", "\n\n\b\nExamples:\n", inspect.cleandoc(function.__doc__ or ""))
        text = re.sub(r"^\$ ", "  ", text, flags=re.MULTILINE)
        return click.command(name, cls=cls, json=json, help=text)(function)

    return register


def _everywhere(hidden: bool = False) -> list[click.Parameter]:
    return [
        _flag("--quiet", "-q", hidden=hidden, help="Print only results, warnings and errors."),
        _flag("--verbose", "-v", hidden=hidden, help="Print more, and the traceback of an error."),
    ]


def _flag(*names: str, **attributes: Any) -> click.Option:
    """Declare a flag for the output of a command, which its function does not get."""
    return Option(names, is_flag=True, is_eager=True, expose_value=False, callback=_set_output, **attributes)


def json_flag() -> click.Option:
    """Return the option --json."""
    return _flag("--json", help="Print one JSON document.", group=OUTPUT_GROUP)


def _set_output(ctx: click.Context, param: click.Parameter, given: bool) -> None:
    if given:
        OUTPUT.set(replace(OUTPUT.get(), **{str(param.name): True}))


def spell(command: click.Command, parameter: Any) -> str:
    """Return a parameter in a message as the option of a command; as in Python if the command has none."""
    options = {option.name: option.opts[-1] for option in command.params if isinstance(option, click.Option)}
    name, value = parameter.name, parameter.value
    if value is False and f"no_{name}" in options:
        return options[f"no_{name}"]
    if name in options:
        return options[name] if value is True else f"{options[name]} {value}"
    return "`prolip models get`" if name == "download" else str(parameter)


# Options that several commands share

LABELLED = (
    "a folder per class, a table (.csv .tsv .jsonl .parquet), an archive (.zip .tar .tar.gz) or a dataset"
)
TRAINING = f"Labelled images: {LABELLED}; its train split, if there is one."
SKIP_LABELLED, SKIP_ALL = 0.1, 1.0  # the fraction of images that may be unreadable


def add_options(
    declarations: Sequence[Callable[[Any], Any]], convert: Callable[[dict[str, Any]], dict[str, Any]]
) -> Callable[[Any], Any]:
    """Return a decorator that adds options to a command, whose function gets what `convert` makes of them."""

    def decorate(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def converted(**values: Any) -> None:
            function(**convert(values))

        return functools.reduce(lambda command, declare: declare(command), reversed(declarations), converted)

    return decorate


# The options of a fit


def fit_options(*names: str, tolerance: float = SKIP_LABELLED) -> Callable[[Any], Any]:
    """Add declared options to a command, which gets the arguments of a classifier as `settings`.

    `tolerance` is the fraction of images that may be unreadable, where there is no --strict.
    """

    def convert(values: dict[str, Any]) -> dict[str, Any]:
        strict = values.get("no_skip_bad")
        settings = {name: values.pop(name) for name in names if name in values}
        settings |= {name: False for name in names if values.pop(f"no_{name}", False)}
        if "skip_bad" in names:
            settings["skip_bad"] = not strict and (settings["skip_bad"] or tolerance)
        if "templates" in names:
            given = settings["templates"]
            settings["templates"] = given[0] if len(given) == 1 else given or None
        if "options" in names:
            settings["options"] = _parse_options(settings["options"]) or None
        return {**values, "settings": settings}

    return add_options([partial(_declare, name) for name in names], convert)


def _declare(name: str, function: Any) -> Any:
    """Add an option of a fit to a command: a value or a flag, and the flag that turns it off."""
    declared, default = OPTIONS[name].metadata["option"], OPTIONS[name].default
    flags = (f"--{name}",) if declared.flags is None else declared.flags
    if declared.off is not None:
        flag(declared.off[0], f"no_{name}", help=declared.off[1], group=declared.group)(function)
    if flags and default is False:
        flag(*flags, name, help=_help(name), group=declared.group)(function)
    elif flags and default is not True:
        attributes: dict[str, Any] = {"type": PATH if declared.path else TEXT, "default": default}
        if declared.least is not None:
            attributes["type"] = click.IntRange(declared.least, declared.most)
        if declared.shown is not None:
            attributes["show_default"] = declared.shown
        if name in ("templates", "options"):
            attributes |= {"multiple": True, "default": None}
        attributes |= {"metavar": declared.metavar, "help": _help(name), "group": declared.group}
        option(*flags, name, **attributes)(function)
    return function


def _help(name: str) -> str:
    """Return what an option of a fit does, without what is possible in Python alone."""
    text: str = OPTIONS[name].metadata["option"].help.partition("; in Python")[0]
    return text.rstrip(".") + "."


def _parse_options(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Parse NAME=VALUE pairs: numbers, true, false and none are what they look like, the rest is text."""
    from prolip.core import UsageError

    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name or not value:
            raise UsageError(f"--option takes NAME=VALUE, got {pair[:80]!r}")
        try:
            parsed[name] = json.loads({"True": "true", "False": "false", "none": "null"}.get(value, value))
        except (ValueError, RecursionError):
            parsed[name] = value
    return parsed


def progress() -> bool:
    """Whether the classifier of a command draws progress."""
    return not OUTPUT.get().silent


def new_classifier(settings: dict[str, Any]) -> FewShotClassifier:
    """Return a classifier with these options, not yet fitted; ask before a model is downloaded."""
    from prolip import FewShotClassifier

    ensure_downloaded(settings["model"], settings["download"])
    return FewShotClassifier(**settings, progress=progress())


def ensure_downloaded(name: str, yes: bool) -> None:
    """Download a model that is not here, after a question on a terminal; elsewhere only if `yes`."""
    from prolip.encoders import fetch
    from prolip.encoders.pretrained import DownloadRequiredError, find_source, is_here, is_hub_name

    if not is_hub_name(name) or is_here(name):
        return
    source = find_source(name)
    size = f"about {source.megabytes} MB" if source.megabytes else "files of unknown size"
    licence = f", licence: {source.licence}" if source.licence else ""
    question = f"{name}: download {size} from {source.repository}{licence}?"
    if not yes and (OUTPUT.get().json or not sys.stdin.isatty() or not click.confirm(question, err=True)):
        raise DownloadRequiredError(name, source)
    with bar(f"downloading {name}", "bytes") as progress:
        fetch(name, progress)


device = option("--device", default="auto", help=_help("device"))
features_store = option("--store", type=PATH, show_default="the user's cache", help=_help("store"))
base = option(
    "--base", metavar="NAME", show_default="as MODEL names it",
    help="The base model of MODEL; it may be downloaded.",
)  # fmt: skip
replaced_model = option("--out", "-o", type=PATH, show_default="MODEL", help="Folder to save the model in.")


# Tables


def column(name: str, default: str, help: str, **more: Any) -> Any:
    """Declare an option about tables."""
    return option(name, show_default=default, help=help, group=IMAGES, **more)


_COLUMNS = {
    "image_column": column("--image-column", "recognised", "The column of images in a table."),
    "label_column": column("--label-column", "recognised", "The column of labels in a table."),
    "images_dir": column("--images-dir", "its own", "The folder of a table's files.", type=PATH),
    "group_by": column(
        "--group-by", "a column group", "What images that are alike share: they stay in one fold.",
        metavar="parent|COLUMN",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Tables:
    """How images and labels are found in tables and folders."""

    image_column: str | None = None
    label_column: str | None = None
    images_dir: Path | None = None
    group_by: str | None = None

    def labelled(self, source: str, split: str) -> Any:
        """Return labelled images as the classifier takes them; also those of a project of the page."""
        from prolip.data import read_images

        if (Path(source) / PROJECT_FILE).is_file():
            from prolip.app.project import labelled_images

            return labelled_images(Path(source), test=split == "test")
        given = vars(self)
        return read_images(source, split, min_classes=1, **given) if any(given.values()) else source

    def listed(self, sources: str | list[str]) -> list[Any]:
        """List images without labels."""
        from prolip.data import list_images

        return list_images(sources, image_column=self.image_column, images_dir=self.images_dir)


def table_options(*names: str) -> Callable[[Any], Any]:
    """Add options about tables to a command, which gets them as `tables`."""

    def convert(values: dict[str, Any]) -> dict[str, Any]:
        tables = Tables(**{name: values.pop(name) for name in names})
        return {**values, "tables": tables}

    return add_options([_COLUMNS[name] for name in names], convert)


tables = table_options(*_COLUMNS)
unlabelled_tables = table_options("image_column", "images_dir")


# Saved models


@dataclass(frozen=True)
class SavedModel:
    """A saved model, and how it is loaded."""

    path: Path
    options: dict[str, Any]  # of `FewShotClassifier.load`

    def load(self) -> FewShotClassifier:
        """Return the model as a classifier."""
        from prolip import FewShotClassifier

        clf = FewShotClassifier.load(self.path, **self.options, progress=progress())
        detail(f"{self.path}: {clf.method} on {clf.model_.encoder.name}, {len(clf.classes_)} classes")
        return clf

    def target(self, out: Path | None) -> Path:
        """Return where a changed model is saved: in place of this one, or in another folder."""
        target = self.path if out is None or out.resolve() == self.path.resolve() else out
        check_new(target, replace=target is self.path)
        return target

    def save(self, clf: FewShotClassifier, target: Path) -> None:
        """Save the changed model as this one is: with its features, if it has them."""
        clf.save(target, support=clf.model_.support.task is not None)


ENCODING = ("skip_bad", "device", "store")


def saved_model(*names: str, tolerance: float = SKIP_LABELLED) -> Callable[[Any], Any]:
    """Add a saved model as the first argument, `saved`, and options of `fit_options` to load it with."""

    def convert(values: dict[str, Any]) -> dict[str, Any]:
        loading = {"base": values.pop("base"), **values.pop("settings")}
        return {"saved": SavedModel(values.pop("path"), loading), **values}

    path = argument("path", "MODEL", "A saved model.", type=PATH)
    return add_options([path, base, fit_options(*names, tolerance=tolerance)], convert)


def require_new_file(out: Path | None) -> None:
    """Refuse a file that exists."""
    from prolip.core import UsageError

    if out is not None and os.path.lexists(out):
        raise UsageError(f"{out} exists: name another file")


def check_new(out: Path, replace: bool, advice: str = "") -> None:
    """Refuse a folder that a model cannot be saved in, or that has a model unless `replace`."""
    from prolip.core import UsageError
    from prolip.export.saved import CONFIG, check_target

    check_target(out)
    if not replace and (out / CONFIG).is_file():
        raise UsageError(f"{out} has a model: {advice}name another folder")
