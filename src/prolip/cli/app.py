"""`prolip app` and `serve`: the page, and a server of saved models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from prolip.cli import options
from prolip.cli.console import say
from prolip.cli.options import PATH, argument, command, flag, option


def server_options(port: int, token: str, about_token: str) -> Callable[[Any], Any]:
    """Return a decorator that adds what every server takes, under the names of `prolip.app.launch`."""
    declarations = [
        option("--host", default="127.0.0.1", help="Address to listen at; 0.0.0.0 is all of this machine."),
        option(
            "--port", type=click.IntRange(0, 65535), default=port,
            help="Port to listen at, or the next free one; 0 is any.",
        ),
        option("--token", envvar="PROLIP_TOKEN", show_default=token, help=about_token),
        option(
            "--allow-host", "allowed_hosts", metavar="NAME", multiple=True,
            help="Another host name for the server, such as that of a proxy.",
        ),
        option("--root-path", metavar="PATH", help="Path at which a proxy has the server."),
        options.device,
    ]  # fmt: skip

    def convert(values: dict[str, Any]) -> dict[str, Any]:
        from prolip.io.environment import require

        for name in ("starlette", "uvicorn"):
            require(name, "app", "this command")
        return {name: value for name, value in values.items() if value is not None}

    return options.add_options(declarations, convert)


@command("app", json=False)
@argument(
    "folder", "[PROJECT]", "Folder of the project; ~/prolip-project by default.", type=PATH, required=False
)
@option(
    "--model",
    show_default="the project's, or offline",
    help="The base model (see `prolip models`); the page has a menu of them.",
)
@server_options(8765, "random", "Secret that opens the page.")
@flag("--no-browser", help="Print the address, and do not open it.")
def open_page(folder: Path | None = None, *, no_browser: bool, **server: Any) -> None:
    """Teach a model in the browser, on this machine.

    $ prolip app
    $ prolip app birds --port 9000
    """
    import webbrowser

    from prolip.app.launch import open_app

    browse = (lambda address: None) if no_browser else webbrowser.open
    open_app(folder or Path.home() / "prolip-project", say=say, browse=browse, **server)


@command("serve", json=False)
@argument("models", "MODEL...", "Saved models.", type=PATH, nargs=-1, required=True)
@server_options(
    8000,
    "none, or random if others can reach the server",
    "Secret that requests need, in the header Authorization: Bearer TOKEN.",
)
@option(
    "--cors", "origins", metavar="ORIGIN", multiple=True,
    help="Let pages of this site send requests; * is every one.",
)  # fmt: skip
@options.base
def serve(models: tuple[Path, ...], **server: Any) -> None:
    """Serve predictions over HTTP: POST /predict with an image.

    A browser shows a form at /.

    $ prolip serve my-model
    $ curl --data-binary @cat.jpg http://127.0.0.1:8000/predict
    """
    from prolip.app import launch

    launch.serve(models, say=say, **server)
