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

import click
from click.shell_completion import shell_complete

from prolip import __version__
from prolip.cli import app, check, compare, evaluate, export, fit, grow, models, predict
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
        fit.demo, fit.fit, predict.predict, evaluate.evaluate, evaluate.report, check.check, grow.add,
        grow.classes, app.open_page, app.serve,
    ],
    "Models": [
        models.models, compare.compare, grow.learning_curve, grow.suggest, predict.embed, export.export,
        export.push,
    ],
    # The commands of research are found by name: nothing else of the product knows them.
    "Research": [
        models.list_methods,
        *(
            getattr(importlib.import_module(f"prolip.research.commands.{name}"), name)
            for name in ("datasets", "bench")
        ),
    ],
})  # fmt: skip
click.version_option(__version__, "-V", "--version", message="prolip %(version)s")(root)

COMPLETE = "_PROLIP_COMPLETE"  # the variable by which a shell asks for completion


def main() -> None:
    """Run the command that was typed, and exit."""
    _open_closed_streams()
    warnings.showwarning = lambda message, *_: warn(str(message))
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
    """Run a command, print one line about an error, and return the exit code."""
    started = time.perf_counter()
    warnings.simplefilter("always", UserWarning)  # each is printed, and none is an error
    try:
        if instruction := os.environ.get(COMPLETE):
            return shell_complete(root, {}, "prolip", COMPLETE, instruction)
        with root.make_context("prolip", arguments) as context:
            root.invoke(context)
        code = 0
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # once more ends at once
        fail("interrupted; run the same command again to continue")
        code = 130
    except click.ClickException as error:
        path = _command(arguments)[1]
        fail(f"{' '.join(error.format_message().split()).rstrip('.')} (help: {path} --help)")
        code = error.exit_code
    except BrokenPipeError:
        code = 1
    except Exception as error:
        code = _failed(error, arguments)
    detail(f"{time.perf_counter() - started:.1f} s")
    return code


def _failed(error: Exception, arguments: list[str]) -> int:
    """Print what went wrong; re-raise errors that are defects of this program."""
    from prolip.core.errors import ProlipError

    if isinstance(error, ProlipError):
        message = error.spelled(partial(spell, _command(arguments)[0]))
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


def _command(arguments: list[str]) -> tuple[click.Command, str]:
    """Return the command that was called, and the words that call it."""
    command: click.Command = root
    path = "prolip"
    for word in arguments:
        if isinstance(command, click.Group) and word in command.commands:
            command, path = command.commands[word], f"{path} {word}"
    return command, path
