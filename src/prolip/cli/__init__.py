"""The command line. Heavy libraries are imported inside the commands, so that help answers at once."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

import typer

from prolip.cli import bench, compare, datasets, demo, export, grow, methods, model, predict

app = typer.Typer(
    name="prolip",
    epilog="Start with `prolip demo`, or `prolip fit photos/ -o my-model`.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from prolip import __version__

        sys.stdout.write(f"prolip {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Teach a CLIP-like model your own classes from a few images of each, in seconds, on a laptop."""


for group in (demo, model, compare, predict, grow, export, methods, datasets, bench):
    group.register(app)


def main() -> None:
    """Run a command: exit 0, 1 for a failure, 2 for wrong use, 130 for Ctrl-C."""
    warnings.showwarning = _warn  # type: ignore[assignment]
    try:
        app()
    except SystemExit as stop:
        if stop.code == 130:
            _fail(
                "interrupted; the same command starts from what was kept: features in the store, answers in "
                "a file, checkpoints"
            )
        raise
    except Exception as error:
        from prolip.core.errors import ProlipError

        if not isinstance(error, ProlipError):
            raise
        _fail(str(error))
        sys.exit(error.exit_code)


def _warn(message: Warning | str, *_: Any) -> None:
    from prolip.cli.console import warn

    warn(str(message))


def _fail(message: str) -> None:
    from prolip.cli.console import fail

    fail(message)
