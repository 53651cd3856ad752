"""The command line. Heavy libraries are imported inside the commands, so that --help is quick.

Exit codes: 0; 1 for a failure; 2 for wrong use; 130 for Ctrl-C.
"""

import importlib
import os
import signal
import sys
import time
import warnings
from contextvars import copy_context
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import click
from click.shell_completion import shell_complete

from prolip.cli import (
    app,
    check,
    classes,
    compare,
    demo,
    embed,
    evaluate,
    export,
    fit,
    grow,
    methods,
    models,
    predict,
    push,
    report,
)
from prolip.cli.console import OUTPUT, detail, fail, warn
from prolip.cli.parameters import Group, spell

root = Group(
    "prolip",
    help="Teach a CLIP-like model your own classes from a few images of each, in seconds, on a laptop.",
    epilog="Start with `prolip demo`, or `prolip fit photos/ -o my-model`. "
    "`prolip COMMAND --help` describes a command; -q and -v may also stand behind its name.",
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 110},
)
root.add_sections({
    "Everyday": [
        demo.demo, fit.fit, predict.predict, evaluate.evaluate, report.report, check.check, grow.add,
        classes.classes, app.open_page, app.serve,
    ],
    "Models": [
        models.models, compare.compare, grow.learning_curve, grow.suggest, embed.embed, export.export,
        push.push,
    ],
    # The commands of research are found by name: nothing else of the product knows them.
    "Research": [
        methods.list_methods,
        *(
            getattr(importlib.import_module(f"prolip.research.commands.{name}"), name)
            for name in ("datasets", "bench")
        ),
    ],
})  # fmt: skip

COMPLETE = "_PROLIP_COMPLETE"  # the variable by which a shell asks for completion
_STOPPED = Event()


def main() -> None:
    """Run the command that was typed, and exit."""
    _open_closed_streams()
    warnings.showwarning = _warn  # type: ignore[assignment]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    code = copy_context().run(_run, sys.argv[1:])  # so that the options of one run are not those of the next
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _open_closed_streams() -> None:
    """Open the null device for a standard stream that is closed (`>&-`) or absent (pythonw).

    Otherwise the next file that is opened gets the number of that stream, and whatever a library prints.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def _run(arguments: list[str]) -> int:
    """Run a command, and return the exit code."""
    started = time.perf_counter()
    warnings.simplefilter("always", UserWarning)  # each is printed, and none is an error
    code = _run_command(arguments)
    detail(f"{time.perf_counter() - started:.1f} s")
    return code


def _run_command(arguments: list[str]) -> int:
    """Run a command, print one line about an error, and return the exit code."""
    try:
        if instruction := os.environ.get(COMPLETE):
            return shell_complete(root, {}, "prolip", COMPLETE, instruction)
        with root.make_context("prolip", arguments) as context:
            root.invoke(context)
        return 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _interrupted()
    except click.ClickException as error:
        return _misused(error, arguments)
    except Exception as error:
        return _interrupted() if _STOPPED.is_set() else _failed(error, arguments)


def _failed(error: Exception, arguments: list[str]) -> int:
    """Print what went wrong; re-raise errors that are defects of this program."""
    from prolip.core.errors import ProlipError

    if isinstance(error, ProlipError):
        message = error.spelled(partial(spell, _command(arguments)))
    elif isinstance(error, MemoryError):
        message = "not enough memory for this: take fewer images, views or classes at a time"
    elif isinstance(error, OSError):
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    else:
        raise error
    if OUTPUT.get().verbose:
        import traceback

        sys.stderr.write("".join(traceback.format_exception(error)))
    fail(message)
    return getattr(error, "exit_code", 1)


def _command(arguments: list[str]) -> click.Command:
    """Return the command that was called."""
    command: click.Command = root
    for word in arguments:
        command = command.commands.get(word, command) if isinstance(command, click.Group) else command
    return command


def _misused(error: click.ClickException, arguments: list[str]) -> int:
    """Print an error of the parser, which may have several lines, as one."""
    context = getattr(error, "ctx", None)
    command = next((f"prolip {word}" for word in arguments if word in root.commands), "prolip")
    message = " ".join(error.format_message().split()).rstrip(".")
    fail(f"{message} (help: {context.command_path if context else command} --help)")
    return error.exit_code


def _interrupt(*_: Any) -> None:
    """Note a Ctrl-C: an extension module that is being imported turns it into another error."""
    _STOPPED.set()
    raise KeyboardInterrupt


def _interrupted() -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # once more ends at once
    fail("interrupted; run the same command again to continue")
    return 130


def _warn(message: Warning | str, *_: Any) -> None:
    warn(str(message))
