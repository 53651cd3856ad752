"""What `prolip app` and `prolip serve` do: from a project or saved models to a running server."""

import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from prolip import encoders
from prolip.app import http_server, page_server, predict_server
from prolip.app.project import LINK, Project, ProjectInUseError
from prolip.app.security import Access, require_token
from prolip.core import ModelError, UsageError
from prolip.encoders import Encoder
from prolip.export.base_model import load_named
from prolip.io.writing import follow
from prolip.solvers.threads import single_thread

Say = Callable[[str], None]


def load_encoder(folder: Path, model: str | None = None, device: str = "auto") -> Encoder:
    """Load the base model of a project: `model`, or by default the one that the project names.

    What the project names is loaded if it is on this machine; `model` may be downloaded.
    """
    if model is not None:
        return encoders.load(model, device)
    name = Project.base_model(folder)
    try:
        return load_named(name, device)
    except ModelError as error:
        raise ModelError(
            f'the project in {folder} needs its base model: {error}; model="{name}" downloads it'
        ) from error


def open_app(
    folder: Path,
    model: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    device: str = "auto",
    *,
    allowed_hosts: Sequence[str] = (),
    root_path: str = "",
    say: Say = print,
    browse: Callable[[str], object] = lambda address: None,
) -> None:
    """Serve the page of a project, which may be new, until Ctrl-C; if it is served already, open that page.

    `model` and `device` are those of `load_encoder`; without a `token` there is a random one at every start.
    `say` is called with each line for the user, `browse` with the address of a page to open.
    """
    _check_path(root_path)
    secret = require_token(host, token) or secrets.token_urlsafe(24)
    access = Access(host, secret, page_server.OPEN_PATHS, allowed_hosts=allowed_hosts)
    folder = follow(folder)
    link_file = folder / LINK
    with single_thread(), ExitStack() as stack:
        encoder = load_encoder(folder, model, device)  # before a folder is made
        listening = stack.enter_context(http_server.bind(host, port))
        try:
            project = stack.enter_context(Project.open(folder, encoder.name))
        except ProjectInUseError:
            if not link_file.is_file():
                raise
            say(f"The page of this project is open already: {http_server.redirect_target(link_file)}")
            browse(link_file.as_uri())
            return
        page = page_server.PageServer(project, encoder, access, device)
        link = f"{http_server.local_url(host, listening.getsockname()[1])}#token={secret}"
        stack.enter_context(http_server.redirect_file(link, link_file))
        say(f"Open {link}")
        say(f"Everything is in {project.folder}; Ctrl-C stops.")
        browse(link_file.as_uri())
        http_server.run(page.application(), listening, page.events.close, root_path=root_path)


def serve(
    models: Sequence[str | Path],
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    device: str = "auto",
    *,
    base: str | None = None,
    origins: Sequence[str] = (),
    allowed_hosts: Sequence[str] = (),
    root_path: str = "",
    access_log: bool = False,
    say: Say = print,
) -> None:
    """Serve predictions of saved models until Ctrl-C.

    `base` is that of `prolip.api.save.load`; pages of `origins` may send requests, and the server may be
    called by `allowed_hosts`. `root_path` is the path at which a proxy has the server.
    """
    _check_path(root_path)
    secret = require_token(host, token)
    access = Access(host, secret, predict_server.OPEN_PATHS, origins, allowed_hosts)
    # BLAS threads spin while they wait: a prediction took 8 ms with two of them, 3 ms with one.
    with single_thread(), http_server.bind(host, port) as listening:
        loaded = predict_server.load_models(models, device, base)
        server = predict_server.PredictServer(loaded, access)
        url = http_server.local_url(host, listening.getsockname()[1])
        say(f"Serving {', '.join(loaded)} at {url}predict; try it at {url}; Ctrl-C stops.")
        if token is None and secret is not None:
            say(f"Requests need this header: Authorization: Bearer {secret}")
        app = server.application()
        http_server.run(app, listening, access_log=access_log, root_path=root_path)


def _check_path(root_path: str) -> None:
    if not re.fullmatch(r"(/[\w.~-]+)*", root_path):
        raise UsageError(f"root_path must be like /prolip, got {root_path[:80]!r}")
