"""Types of option values, and how commands, options and arguments are declared.

Text and paths of every option refuse an empty value: it is not the same as an absent one.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from prolip.api.recipe import GROUPS
from prolip.api.recipe import OUTPUT as OUTPUT_GROUP
from prolip.cli.console import OUTPUT

UNGROUPED = 10  # options that the help lists without groups


class NonEmptyText(click.ParamType):
    """Text; an empty value is refused, because it is not the same as an absent one."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text as it is."""
        return value if value.strip() else self.fail("the value is empty", param, ctx)


class DeviceName(NonEmptyText):
    """A device that the image encoder can run on."""

    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name, if it is one of a device."""
        if super().convert(value, param, ctx) != "auto":
            from prolip.encoders.base import check_device

            check_device(value)
        return value


class FilePath(click.Path):
    """A path that a file can have, and one of these suffixes; whether a file is there does not matter."""

    def __init__(self, *suffixes: str) -> None:
        super().__init__()
        self.suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or say why there can be no such file."""
        path = Path(value)
        if value == "":  # Path("") is the current folder
            self.fail("the value is empty", param, ctx)
        if self.suffixes and path.suffix.lower() not in self.suffixes:
            self.fail(f"{value!r} does not end in {' or '.join(self.suffixes)}", param, ctx)
        try:
            path.expanduser().lstat()
        except FileNotFoundError:
            pass
        except (OSError, RuntimeError, ValueError) as error:  # too long, below a file; no such user
            self.fail(f"{value}: {getattr(error, 'strerror', None) or error}", param, ctx)
        return path


class Fraction(click.FloatRange):
    """A number in a range, which a NaN is not."""

    name = "fraction"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        return self.fail("NaN is in no range", param, ctx) if number != number else number


TEXT, PATH, FRACTION = NonEmptyText(), FilePath(), Fraction(0, 1, max_open=True)
HTML, CSV = FilePath(".html"), FilePath(".csv")
POSITIVE, SEED = click.IntRange(min=1), click.IntRange(0, 2**32 - 1)  # NumPy takes no larger seed


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


class Command(click.Command):
    """A command with the options that every command has, whose help describes its arguments, too."""

    def __init__(self, name: str, params: list[click.Parameter], json: bool, **attributes: Any) -> None:
        params = [*params, *([json_flag()] if json else [])]
        super().__init__(name, params=[*params, *_everywhere(hidden=True)], **attributes)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description, then the arguments."""
        super().format_help_text(ctx, formatter)
        arguments = [one for one in self.params if isinstance(one, Argument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(one.human_readable_name, one.about) for one in arguments])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, in groups where there are many."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            if not isinstance(option, Argument) and (record := option.get_help_record(ctx)):
                sections.setdefault(getattr(option, "group", "Options"), []).append(record)
        if sum(map(len, sections.values())) <= UNGROUPED:
            sections = {"Options": [record for records in sections.values() for record in records]}
        order = [*GROUPS, "Options"] if GROUPS[0] in sections else ["Options", *GROUPS]
        for title in sorted(sections, key=order.index):
            with formatter.section(title):
                formatter.write_dl(sections[title])


class Group(click.Group):
    """A group of commands that are listed in their order; without a command it prints its help."""

    def __init__(self, name: str, **attributes: Any) -> None:
        super().__init__(
            name, callback=_print_help, invoke_without_command=True, params=_everywhere(), **attributes
        )
        self.sections: dict[str, list[str]] = {}  # names of commands by their title; none for a plain list

    def add_sections(self, sections: Mapping[str, Sequence[click.Command]]) -> None:
        """Add commands under titles of the help."""
        self.sections = {title: [str(each.name) for each in commands] for title, commands in sections.items()}
        for commands in sections.values():
            for each in commands:
                self.add_command(each)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they were added."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, under a title for each group of them."""
        sections = self.sections or {"Commands": self.list_commands(ctx)}
        width = max(map(len, self.commands))
        for title, names in sections.items():
            with formatter.section(title):
                rows = [(name.ljust(width), self.commands[name].get_short_help_str(90)) for name in names]
                formatter.write_dl(rows)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find a command, or suggest the nearest one."""
        if args[0] not in self.commands and not ctx.resilient_parsing:
            from prolip.core.errors import UnknownNameError

            raise UnknownNameError("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


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
        _flag("--version", "-V", hidden=hidden, help="Print the version.", callback=_print_version),
    ]


def _flag(*names: str, **attributes: Any) -> click.Option:
    """Declare a flag for the output of a command, which its function does not get."""
    attributes.setdefault("callback", _set_output)
    return Option(names, is_flag=True, expose_value=False, is_eager=True, **attributes)


def json_flag() -> click.Option:
    """Return the option --json."""
    return _flag("--json", help="Print one JSON document.", group=OUTPUT_GROUP)


def _set_output(ctx: click.Context, param: click.Parameter, given: bool) -> None:
    if given and param.name:
        OUTPUT.set(replace(OUTPUT.get(), **{param.name: True}))


def _print_version(ctx: click.Context, param: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        from prolip import __version__

        click.echo(f"prolip {__version__}")
        ctx.exit()


def spell(command: click.Command, parameter: Any) -> str:
    """Write a parameter in the message of an error as the option of a command, or as what to leave out.

    A parameter that the command does not have is written as in Python.
    """
    options = {option.name: option.opts[-1] for option in command.params if isinstance(option, click.Option)}
    name, value = parameter.name, parameter.value
    off = options.get(f"no_{name}")
    if isinstance(value, bool) and (off or name in options):
        if value:
            return options.get(name) or f"without {off}"
        return off or f"without {options[name]}"
    if name in options:
        return f"{options[name]} {value}"
    if name == "download":
        return "`prolip models get`"
    return f"-O {name}={value}" if "options" in options else str(parameter)
