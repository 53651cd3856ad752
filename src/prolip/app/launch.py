"""What `prolip app` and `prolip serve` do: from a project or saved models to a running server."""

import errno
import html
import logging
import os
import re
import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from prolip import encoders
from prolip.app import page_server, predict_server
from prolip.app.project import LINK, Project, ProjectInUseError
from prolip.app.security import Access, require_token
from prolip.core import ModelError, ProlipError
from prolip.encoders import Encoder
from prolip.export.base_model import load_named
from prolip.io.writing import follow
from prolip.solvers.threads import single_thread

Say = Callable[[str], None]

MAX_CONNECTIONS = 256  # more get 503
SHUTDOWN_SECONDS = 5  # in which responses under way may be completed
PORTS_TRIED = 20  # if the first ones are in use


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
    secret = require_token(host, token) or secrets.token_urlsafe(24)
    access = Access(host, secret, page_server.OPEN_PATHS, allowed_hosts=allowed_hosts)
    folder = follow(folder)
    link_file = folder / LINK
    with single_thread(), ExitStack() as stack:
        encoder = load_encoder(folder, model, device)  # before a folder is made
        listening = stack.enter_context(bind(host, port))
        try:
            project = stack.enter_context(Project.open(folder, encoder.name))
        except ProjectInUseError:
            if not link_file.is_file():
                raise
            say(f"The page of this project is open already: {redirect_target(link_file)}")
            browse(link_file.as_uri())
            return
        page = page_server.PageServer(project, encoder, access, device)
        link = f"{local_url(listening)}#token={secret}"
        stack.enter_context(redirect_file(link, link_file))
        say(f"Open {link}")
        say(f"Everything is in {project.folder}; Ctrl-C stops.")
        browse(link_file.as_uri())
        run(page.application(), listening, page.events.close, root_path=root_path)


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
    say: Say = print,
) -> None:
    """Serve predictions of saved models until Ctrl-C.

    `base` is that of `prolip.api.save.load`; pages of `origins` may send requests, and the server may be
    called by `allowed_hosts`. `root_path` is the path at which a proxy has the server.
    """
    secret = require_token(host, token)
    access = Access(host, secret, predict_server.OPEN_PATHS, origins, allowed_hosts)
    # BLAS threads spin while they wait: a prediction took 8 ms with two of them, 3 ms with one.
    with single_thread(), bind(host, port) as listening:
        loaded = predict_server.load_models(models, device, base)
        server = predict_server.PredictServer(loaded, access)
        url = local_url(listening)
        say(f"Serving {', '.join(loaded)} at {url}predict; try it at {url}; Ctrl-C stops.")
        if token is None and secret is not None:
            say(f"Requests need this header: Authorization: Bearer {secret}")
        run(server.application(), listening, root_path=root_path)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens at this port, or at the next free one; 0 is any."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for attempt in range(port, min(port + PORTS_TRIED, 65536)):
        try:
            listening = socket.create_server((host.strip("[]"), attempt), family=family)
            # asyncio sets it only on sockets of a stated protocol; small responses would wait for 40 ms.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listening
        except OSError as error:
            failure = error
            if error.errno != errno.EADDRINUSE:
                break
    raise ProlipError(f"cannot listen at {host}, port {port}: {failure.strerror or failure}") from failure


def local_url(listening: socket.socket) -> str:
    """Return the address to open in a browser on this machine."""
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"


@contextmanager
def redirect_file(link: str, path: Path) -> Iterator[None]:
    """Write a page that redirects to a link and that only this user can read; remove it at the end.

    The link has the token in it, and every user of the machine can see what a browser is started with.
    """
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(f'<title>prolip</title><meta http-equiv="refresh" content="0; url={html.escape(link)}">\n')
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def redirect_target(path: Path) -> str:
    """Return the link of a page that `redirect_file` wrote."""
    link = re.search(r'url=([^"]*)"', path.read_text("utf-8"))
    return html.unescape(link[1]) if link else ""


class _Server(uvicorn.Server):
    """Calls back at a signal, before it waits for the responses under way."""

    on_stop: Callable[[], None]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.on_stop()
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # not that requests are cancelled
        super().handle_exit(sig, frame)


def run(
    app: Any, listening: socket.socket, on_stop: Callable[[], None] = lambda: None, root_path: str = ""
) -> None:
    """Serve until a signal; responses under way are completed first, if they do not take long."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn raises a signal again at its end
    server = _Server(config(app, root_path))
    server.on_stop = on_stop
    with suppress(KeyboardInterrupt):
        server.run([listening])


def config(app: Any, root_path: str = "") -> uvicorn.Config:
    """Return uvicorn's configuration for an application."""
    settings = uvicorn.Config(
        app,
        access_log=False,
        root_path=root_path,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        lifespan="on",
    )
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return settings
