"""The command line. Heavy libraries are imported inside the commands, so that --help is quick.

Exit codes: 0; 1 for a failure; 2 for wrong use; 130 for Ctrl-C.
"""

import importlib
import os
import signal
import sys
import time
import traceback
import warnings
from contextvars import copy_context
from pathlib import Path

import click

from prolip import __version__
from prolip.cli import app, evaluate, export, fit, grow, models, predict
from prolip.cli.console import OUTPUT, detail, fail, warn
from prolip.cli.options import Group

root = Group(
    "prolip",
    help="Teach a CLIP-like model your own classes from a few images of each, in seconds, on a laptop.",
    epilog="Start with `prolip demo`, or `prolip fit photos/ -o my-model`. "
    "`prolip COMMAND --help` describes a command; -q and -v may also stand behind its name.",
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 110},
)
root.add_sections({
    "Everyday": [
        fit.demo, fit.fit, predict.predict, evaluate.evaluate, evaluate.report, evaluate.check, grow.add,
        grow.classes, app.open_page, app.serve,
    ],
    "Models": [
        models.models, models.compare, grow.learning_curve, grow.suggest, predict.embed, export.export,
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
        code = root.main(arguments, "prolip", standalone_mode=False) or 0
    except click.Abort:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # once more ends at once
        fail("interrupted; run the same command again to continue")
        code = 130
    except click.ClickException as error:
        _show_traceback(error.__cause__)
        context = getattr(error, "ctx", None)
        advice = f" (help: {context.command_path} --help)" if context else ""
        fail(" ".join(error.format_message().split()).rstrip(".") + advice)
        code = error.exit_code
    except MemoryError:
        fail("not enough memory for this: take fewer images, views or classes at a time")
        code = 1
    except OSError as error:
        _show_traceback(error)
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        code = 1
    detail(f"{time.perf_counter() - started:.1f} s")
    return code


def _show_traceback(error: BaseException | None) -> None:
    if error is not None and OUTPUT.get().verbose:
        sys.stderr.write("".join(traceback.format_exception(error)))
