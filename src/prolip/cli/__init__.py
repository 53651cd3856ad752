"""The command line. Heavy libraries are imported inside the commands, so that help answers at once.

Exit codes: 0; 1 for a failure; 2 for wrong use; 130 for Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from typing import Annotated, Any

import typer

from prolip.cli import app as page
from prolip.cli import bench, check, classes, datasets, demo, export, grow, methods, model, predict, report
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


for group in (demo, model, predict, report, check, classes, grow, export, page, methods, datasets, bench):
    group.register(app)


def main() -> None:
    """Run the command that was typed, and exit."""
    warnings.showwarning = _warn  # type: ignore[assignment]
    VERBOSITY.set(0)
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
    from prolip.core.errors import ProlipError

    try:
        return _command()(arguments, prog_name="prolip", standalone_mode=False) or 0
    except (typer.Abort, KeyboardInterrupt):
        return _interrupted()
    except ProlipError as error:
        return _failed(str(error), error.exit_code)
    except MemoryError:
        return _failed("not enough memory for this: take fewer images, views or classes at a time", 1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _failed(f"{place}{error.strerror or error}", 1)
    except Exception as error:
        if not hasattr(error, "format_message"):  # a defect of ours
            raise
        return _misused(error)


def _command() -> Any:
    """The command line as typer makes it, with help that does not call a flag <bool>."""
    root: Any = typer.main.get_command(app)
    context = typer.Context(root, help_option_names=HELP)
    waiting = [root]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        for option in command.get_params(context):
            if getattr(option, "is_flag", False):
                option.metavar = ""
    return root


def _anywhere(arguments: list[str]) -> list[str]:
    """The arguments with the options of every command first."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    first = [word for word in arguments[:end] if word in ANYWHERE]
    return [*first, *(word for word in arguments[:end] if word not in ANYWHERE), *arguments[end:]]


def _failed(message: str, code: int) -> int:
    if VERBOSITY.get() > 0:
        import traceback

        sys.stderr.write(traceback.format_exc())
    fail(message)
    return code


def _misused(error: Any) -> int:
    """An error of typer's parser; an empty one is a group without a command, whose help is printed."""
    if message := error.format_message():
        context = getattr(error, "ctx", None)
        fail(f"{message.rstrip('.')} (help: {context.command_path if context else 'prolip'} --help)")
    return int(error.exit_code)


def _interrupted() -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # once more ends at once
    fail(
        "interrupted; the same command starts from what was kept: features in the store, answers in a file, "
        "checkpoints"
    )
    return 130


def _warn(message: Warning | str, *_: Any) -> None:
    warn(str(message))
