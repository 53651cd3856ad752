"""The command line. Heavy libraries are imported inside the commands, so that help answers at once.

Exit codes: 0; 1 for a failure; 2 for wrong use; 130 for Ctrl-C.
"""

import functools
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer

from prolip.cli import app as page
from prolip.cli import (
    bench,
    check,
    classes,
    compare,
    datasets,
    demo,
    export,
    grow,
    methods,
    model,
    predict,
    report,
)
from prolip.cli.console import VERBOSITY, detail, fail, warn

HELP = ["-h", "--help"]
app = typer.Typer(
    name="prolip",
    epilog="Start with `prolip demo`, or `prolip fit photos/ -o my-model`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP},
)

# Options of every command: they may stand behind its name, too.
ANYWHERE = ("-q", "--quiet", "-v", "--verbose", "-V", "--version")

_STOPPED = Event()


def _version(asked: bool) -> None:
    if asked:
        from prolip import __version__

        sys.stdout.write(f"prolip {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Results, warnings and errors alone.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="More on what is done; where an error comes from.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Teach a CLIP-like model your own classes from a few images of each, in seconds, on a laptop."""
    VERBOSITY.set(-1 if quiet else int(verbose))


COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.demo,
    "fit": model.fit,
    "eval": model.evaluate,
    "compare": compare.compare,
    "predict": predict.predict,
    "report": report.report,
    "check": check.check,
    "classes": classes.classes,
    "add": grow.add,
    "curve": grow.curve,
    "suggest": grow.suggest,
    "export": export.export,
    "convert": export.convert,
    "embed": export.embed,
    "reproject": export.reproject,
    "app": page.open_page,
    "serve": page.serve,
    "methods": methods.list_methods,
    "datasets": datasets.datasets,
}
for name, command in COMMANDS.items():
    app.command(name)(command)
app.add_typer(bench.group, name="bench")


def main() -> None:
    """Run the command that was typed, and exit."""
    warnings.showwarning = _warn  # type: ignore[assignment]
    VERBOSITY.set(0)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    started = time.perf_counter()
    code = _run(_anywhere(sys.argv[1:]) or ["--help"])
    detail(f"{time.perf_counter() - started:.1f} s")
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """Run a command; what goes wrong is told in one line."""
    try:
        code = _command()(arguments, prog_name="prolip", standalone_mode=False) or 0
        return _interrupted() if code == 130 else code  # what typer makes of Ctrl-C
    except (typer.Abort, KeyboardInterrupt):
        return _interrupted()
    except Exception as error:
        if _STOPPED.is_set():
            return _interrupted()
        if hasattr(error, "format_message"):  # of typer's parser
            return _misused(error, arguments)
        return _failed(error)


@functools.cache
def _command() -> Any:
    """The command line as typer makes it; flags are not called <bool>, and paths are looked at first."""
    root: Any = typer.main.get_command(app)
    context = typer.Context(root, help_option_names=HELP)
    waiting = [root]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        for option in command.get_params(context):
            if getattr(option, "is_flag", False):
                option.metavar = ""
            elif option.type_descriptor.annotation is Path:
                option.callback = _check_path
    return root


def _check_path(context: Any, option: Any, value: Path | None) -> Path | None:
    """Refuse a path that no file can have, before anything is loaded; one where nothing is will do."""
    try:
        if value is not None:
            value.expanduser().lstat()
    except FileNotFoundError:
        pass
    except (OSError, RuntimeError, ValueError) as error:  # too long, below a file; no such user
        reason = getattr(error, "strerror", None) or error
        raise typer.BadParameter(f"{value}: {reason}", ctx=context, param=option) from error
    return value


def _anywhere(arguments: list[str]) -> list[str]:
    """The arguments with the options of every command first."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    first = [word for word in arguments[:end] if word in ANYWHERE]
    return [*first, *(word for word in arguments[:end] if word not in ANYWHERE), *arguments[end:]]


def _failed(error: Exception) -> int:
    """Tell what went wrong; an error that is neither the user's nor the machine's is a defect of ours."""
    from prolip.core.errors import ProlipError

    if isinstance(error, ProlipError):
        message = str(error)
    elif isinstance(error, MemoryError):
        message = "not enough memory for this: take fewer images, views or classes at a time"
    elif isinstance(error, OSError):
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    else:
        raise error
    if VERBOSITY.get() > 0:
        import traceback

        sys.stderr.write("".join(traceback.format_exception(error)))
    fail(message)
    return getattr(error, "exit_code", 1)


def _misused(error: Any, arguments: list[str]) -> int:
    """An error of typer's parser; an empty one is a group without a command, whose help it has printed."""
    message, context = error.format_message(), getattr(error, "ctx", None)
    if not message:
        return 0
    command = next((f"prolip {word}" for word in arguments if word in COMMANDS), "prolip")
    fail(f"{message.rstrip('.')} (help: {context.command_path if context else command} --help)")
    return int(error.exit_code)


def _interrupt(*_: Any) -> None:
    """Ctrl-C, remembered: an extension module that is being imported turns it into another error."""
    _STOPPED.set()
    raise KeyboardInterrupt


def _interrupted() -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # once more ends at once
    fail(
        "interrupted; the same command starts from what was kept: features in the store, answers in a file, "
        "checkpoints"
    )
    return 130


def _warn(message: Warning | str, *_: Any) -> None:
    warn(str(message))
