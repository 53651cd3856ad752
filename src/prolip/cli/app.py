"""`prolip app` and `serve`: the page, and a server of saved models."""

from pathlib import Path

import click

from prolip.cli import options
from prolip.cli.console import say
from prolip.cli.parameters import PATH, argument, command, flag, option

PORT = click.IntRange(0, 65535)
host = option(
    "--host", default="127.0.0.1", help="Address to listen at; 0.0.0.0 is every one of this machine."
)
allow_host = option(
    "--allow-host", "allowed_hosts", metavar="NAME", multiple=True,
    help="Another host name for the server, such as that of a proxy.",
)  # fmt: skip
root_path = option("--root-path", metavar="PATH", help="Path at which a proxy has the server.")


@command("app", json=False)
@argument(
    "folder", "[PROJECT]", "Folder of the project; ~/prolip-project by default.", type=PATH, required=False
)
@option(
    "--model",
    show_default="the project's, or offline",
    help="The base model (see `prolip models`); the page has a menu of them.",
)
@host
@option("--port", type=PORT, default=8765, help="Port to listen at, or the next free one; 0 is any.")
@option("--token", envvar="PROLIP_TOKEN", show_default="random", help="Secret that opens the page.")
@allow_host
@root_path
@flag("--no-browser", help="Print the address, and do not open it.")
@options.device
def open_page(
    folder: Path | None,
    model: str | None,
    host: str,
    port: int,
    token: str | None,
    allowed_hosts: tuple[str, ...],
    root_path: str | None,
    no_browser: bool,
    device: str,
) -> None:
    """Teach a model in the browser, on this machine.

    $ prolip app
    $ prolip app birds --port 9000
    """
    _require_web()
    import webbrowser

    from prolip.app.launch import open_app

    place = Path.home() / "prolip-project" if folder is None else folder
    open_app(
        place, model, host, port, token, device, allowed_hosts=allowed_hosts, root_path=root_path or "",
        say=say, browse=(lambda address: None) if no_browser else webbrowser.open,
    )  # fmt: skip


@command("serve", json=False)
@argument("models", "MODEL...", "Saved models.", type=PATH, nargs=-1, required=True)
@host
@option("--port", type=PORT, default=8000, help="Port to listen at, or the next free one; 0 is any.")
@option(
    "--token", envvar="PROLIP_TOKEN", show_default="none, or random if others can reach the server",
    help="Secret that requests need, in the header Authorization: Bearer TOKEN.",
)  # fmt: skip
@allow_host
@root_path
@option(
    "--cors", metavar="ORIGIN", multiple=True, help="Let pages of this site send requests; * is every one."
)
@flag("--access-log", help="Print a line for each request.")
@options.base
@options.device
def serve(
    models: tuple[Path, ...], host: str, port: int, token: str | None, allowed_hosts: tuple[str, ...],
    root_path: str | None, cors: tuple[str, ...], access_log: bool, base: str | None, device: str,
) -> None:  # fmt: skip
    """Serve predictions over HTTP: POST /predict with an image.

    A browser shows a form at /, and the API at /docs.

    $ prolip serve my-model
    $ curl --data-binary @cat.jpg http://127.0.0.1:8000/predict
    """
    _require_web()
    from prolip.app import launch

    launch.serve(
        models, host, port, token, device, base=base, origins=cors, allowed_hosts=allowed_hosts,
        root_path=root_path or "", access_log=access_log, say=say,
    )  # fmt: skip


def _require_web() -> None:
    """Refuse to start without the web libraries, and say how to install them."""
    import importlib.util

    from prolip.io.environment import MissingPackageError

    for name in ("starlette", "uvicorn", "python_multipart"):
        if not importlib.util.find_spec(name):
            raise MissingPackageError("this command", name, "app")
