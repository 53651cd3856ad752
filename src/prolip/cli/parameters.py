"""Types of option values, and how commands, options and arguments are declared.

Text and paths of every option refuse an empty value: it is not the same as an absent one.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from prolip.api.recipe import GROUPS
from prolip.api.recipe import OUTPUT as OUTPUT_GROUP
from prolip.cli.console import OUTPUT


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
        from prolip.core.errors import ProlipError, UsageError

        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise click.Abort from error
        except ProlipError as error:
            kind = click.UsageError if isinstance(error, UsageError) else click.ClickException
            raise kind(error.spelled(partial(spell, self))) from error


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

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they were added."""
        return list(self.commands)

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
    """Write a parameter in the message of an error as the option of a command, or as what to leave out.

    A parameter that the command does not have is written as in Python.
    """
    options = {option.name: option.opts[-1] for option in command.params if isinstance(option, click.Option)}
    name, value = parameter.name, parameter.value
    on, off = options.get(name), options.get(f"no_{name}")
    if isinstance(value, bool) and (on or off):
        yes, no = (on, off) if value else (off, on)
        return yes or f"without {no}"
    if on:
        return f"{on} {value}"
    if name == "download":
        return "`prolip models get`"
    return f"-O {name}={value}" if "options" in options else str(parameter)
