"""`prolip app` and `prolip serve` from what their user names to a running server."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

from prolip import encoders
from prolip.app import run
from prolip.app.guard import Access
from prolip.app.page import OPEN_PATHS, Page
from prolip.app.project import Project
from prolip.app.serve import OPEN_PATHS as SERVE_PATHS
from prolip.app.serve import Server, load_models
from prolip.core import UsageError
from prolip.encoders import Encoder
from prolip.encoders.precomputed import require_images
from prolip.export.base_model import is_known, quoted, remember
from prolip.io.writing import follow
from prolip.solvers.threads import single_thread

Say = Callable[[str], None]


def load_encoder(folder: Path, model: str | None = None, device: str = "auto") -> Encoder:
    """The base model of a project: the one that is named here, else the one that the project names.

    A project from someone else could name anything, and loading would fetch or open it. So what the project
    names is loaded only if it comes with the program, or was used here before with the same weights.
    """
    if model is not None and not model.strip():
        raise UsageError(
            "model must be the name of a model, got an empty text: leave it out for the usual one"
        )
    found = Project.base_model(folder)
    if model is None and not is_known(found.name, found.fingerprint):
        raise UsageError(
            f"the project in {folder} would open or fetch {found.name!r}, its base model, which was never "
            f"used here: if that is what you want, name it, model={quoted(found.name)}"
        )
    encoder = encoders.load(found.name if model is None else model, device)
    require_images(encoder, "the page")
    remember(encoder)
    return encoder


def open_app(
    folder: Path,
    model: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    device: str = "auto",
    *,
    say: Say = print,
    browse: Callable[[str], object] | None = None,
) -> None:
    """Serve the page of a project until Ctrl-C.

    Parameters
    ----------
    folder
        The project; a new one is made where there is none.
    model
        Its base model; by default the one that it has, or `offline`.
    host, port, token
        Where to listen, and what a browser has to bring; by default a token is drawn at every start.
    device
        Where the model runs.
    say
        Called with each line for the user.
    browse
        Called with the address of a page to open; None opens none.
    """
    run.require_token(host, token)
    key = secrets.token_urlsafe(24) if token is None else token
    folder = follow(folder)
    with single_thread(), ExitStack() as stack:
        encoder = load_encoder(folder, model, device)  # before a folder is made
        listening = stack.enter_context(run.bind(host, port))
        project = stack.enter_context(Project.open(folder, encoder))
        at = listening.getsockname()[1]
        page = Page(project, encoder, Access.at(host, at, key, OPEN_PATHS))
        link = f"{run.address(host, at)}#token={quote(key, safe='')}"

        def started() -> None:
            say(f"Open {link}")
            say(f"Everything is in {project.folder}; Ctrl-C stops.")
            if browse is not None:
                browse(stack.enter_context(run.redirect_file(link, project.folder)).as_uri())

        run.run(page.application(), listening, started, page.events.close)


def serve(
    models: Sequence[str | Path],
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    device: str = "auto",
    *,
    base: str | None = None,
    trust_base: bool = False,
    say: Say = print,
) -> None:
    """Answer requests about saved models until Ctrl-C; `base` and `trust_base` are those of loading one."""
    run.require_token(host, token)
    # BLAS threads spin while they wait: an answer took 8 ms beside the tower's own with two, 3 with one.
    with single_thread(), run.bind(host, port) as listening:
        at = listening.getsockname()[1]
        loaded = load_models(models, device, base, trust_base)
        server = Server(loaded, Access.at(host, at, token, SERVE_PATHS))
        names = ", ".join(server.models.models)
        link = f"{run.address(host, at)}predict"
        run.run(server.application(), listening, lambda: say(f"Serving {names} at {link}; Ctrl-C stops."))
