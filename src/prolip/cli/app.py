"""`prolip app` and `serve`: the page, and a server of saved models."""

from pathlib import Path
from typing import Annotated

import typer

from prolip.cli.common import Base, Device, TrustBase
from prolip.cli.console import say

Host = Annotated[str, typer.Option(help="Address to listen at; any but this machine's own needs --token.")]
Port = Annotated[int, typer.Option(help="Port to listen at; 0 takes a free one.")]


def open_page(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[PROJECT]", help="Folder of the project; ~/prolip-project unless named."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="offline, open_clip:ARCH/TAG, hf:ID-or-PATH; as it was, or offline, unless named."),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    token: Annotated[
        str | None, typer.Option(envvar="PROLIP_TOKEN", help="Drawn anew at every start unless named.")
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and do not open it.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Teach a model in the browser, on this machine: drop photos, see what it learns, take it along.

    prolip app

    prolip app birds --port 9000
    """
    import secrets

    _require_web()
    from prolip import encoders
    from prolip.app import run
    from prolip.app.guard import Access
    from prolip.app.page import OPEN_PATHS, Page
    from prolip.app.project import Project
    from prolip.core import UsageError
    from prolip.solvers.threads import single_thread

    run.require_token(host, token)
    key = token or secrets.token_urlsafe(24)
    place = folder or Path.home() / "prolip-project"
    with single_thread():
        name = model or Project.model_of(place)
        encoder = encoders.load(name, device)  # before a folder is made, or a name kept that may be wrong
        if not encoder.takes_pictures:
            raise UsageError(f"{name!r} stands for embeddings that you have: name a model of pictures")
        with Project.open(place, name) as project, run.bind(host, port) as listening:
            at = listening.getsockname()[1]
            page = Page(project, encoder, Access.at(host, at, key, OPEN_PATHS))
            link = f"{run.address(host, at)}#{key}"

            def started() -> None:
                say(f"Open {link}")
                say(f"Everything is kept in {project.folder.resolve()}; Ctrl-C stops.")
                if not no_browser:
                    import webbrowser

                    webbrowser.open(link)

            run.run(page.application(), listening, started, page.events.close)


def serve(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Saved models.")],
    host: Host = "127.0.0.1",
    port: Port = 8000,
    token: Annotated[
        str | None,
        typer.Option(envvar="PROLIP_TOKEN", help="What requests must bring: Authorization: Bearer TOKEN."),
    ] = None,
    base: Base = None,
    trust_base: TrustBase = False,
    device: Device = "auto",
) -> None:
    """Answer over HTTP: POST /predict with a picture; /openapi.json tells the rest.

    prolip serve my-model

    curl --data-binary @cat.jpg http://127.0.0.1:8000/predict
    """
    _require_web()
    from prolip.app import run
    from prolip.app.guard import Access
    from prolip.app.serve import OPEN_PATHS, Server, load_models
    from prolip.solvers.threads import single_thread

    run.require_token(host, token)
    # BLAS threads spin while they wait: an answer took 8 ms beside the tower's own with two, 3 with one.
    with single_thread(), run.bind(host, port) as listening:
        at = listening.getsockname()[1]
        loaded = load_models(models, device, base, trust_base)
        server = Server(loaded, Access.at(host, at, token, OPEN_PATHS))
        names = ", ".join(server.models.models)
        link = f"{run.address(host, at)}predict"
        run.run(server.application(), listening, lambda: say(f"Serving {names} at {link}; Ctrl-C stops."))


def _require_web() -> None:
    """Say what to install where the web libraries are missing."""
    import importlib.util

    from prolip.core import UsageError

    if missing := [
        n for n in ("starlette", "uvicorn", "python_multipart") if not importlib.util.find_spec(n)
    ]:
        raise UsageError(f"this needs {missing[0]}: pip install 'prolip[app]'")
