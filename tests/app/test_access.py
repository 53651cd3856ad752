"""Who gets in and who does not: tokens and cookies of any kind, idle callers, projects of others."""

import http.client
import json
import os
import re
import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from urllib.parse import unquote
from urllib.request import url2pathname

import pytest

pytest.importorskip("starlette", reason="the extra `app` is not installed")
pytest.importorskip("uvicorn", reason="the extra `app` is not installed")
pytest.importorskip("python_multipart", reason="the extra `app` is not installed")

from app_server import Client, png, running
from pictures import blotch
from prolip.app import http_server, images, launch, security
from prolip.app.page_server import OPEN_PATHS, PageServer
from prolip.app.project import Project
from prolip.app.security import Access, require_token
from prolip.core import UsageError

TOKENS = [
    "correcthorsebatterystaple",
    "correct horse battery staple",
    "schlüssel-für-später",
    '100% sûr; a=b, "c" \\ d & <e>',
    "%41%20percent-encoded",
    "鍵鍵鍵鍵鍵鍵鍵鍵鍵鍵鍵鍵鍵鍵鍵鍵",
    "token=classes#token=",
]
COOKIES = [
    'prefs={"dark":true}',
    "theme=dark mode",
    "name=müller",
    "[odd]=1",
    "a(b)c=1",
    "=;;= ; ,",
    "flag",
    '"=x',
    "\x01=\x02",
    "x=" + "y" * 60_000,
]


@pytest.fixture
def serve(tmp_path, offline):
    """Start a page with a token; yields a function that does."""
    with ExitStack() as stack:

        def begin(token):
            project = stack.enter_context(Project.open(tmp_path / "p"))

            def make(port):
                return PageServer(
                    project, offline, Access.at("127.0.0.1", port, token, OPEN_PATHS)
                ).application()

            return Client(stack.enter_context(running(make)), token)

        yield begin


@pytest.mark.parametrize("token", TOKENS)
def test_every_token_that_is_accepted_logs_in(serve, token):
    require_token("0.0.0.0", token)
    page = serve(token)
    for charset in ("utf-8", "latin-1"):
        try:
            sent = token.encode(charset)
        except UnicodeEncodeError:
            continue
        headers = {"Authorization": b"Bearer " + sent}
        assert page.raw("GET", "/api/project", headers=headers)[0] == 200, charset
    status, headers, _ = page.raw(
        "POST", "/api/session", json.dumps({"token": token}).encode(), {"Authorization": None}
    )
    cookie = headers["set-cookie"].partition(";")[0]
    assert status == 200
    assert token not in unquote(cookie)
    assert page.raw("GET", "/api/project", headers={"Authorization": None, "Cookie": cookie})[0] == 200


@pytest.mark.parametrize("foreign", COOKIES)
def test_cookies_of_other_programs_lock_nobody_out(serve, foreign):
    page = serve("a-token-for-tests")
    own = f"{Access.at('127.0.0.1', page.port, page.token, ()).cookie}="
    _, headers, _ = page.raw("POST", "/api/session", json.dumps({"token": page.token}).encode())
    cookie = headers["set-cookie"].partition(";")[0]
    assert cookie.startswith(own)
    for line in (f"{foreign}; {cookie}", f"{cookie}; {foreign}", f"{own}wrong; {foreign};{cookie}"):
        with socket.create_connection(("127.0.0.1", page.port)) as caller:
            head = (
                f"GET /api/project HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\nConnection: close\r\nCookie: "
            )
            caller.sendall(f"{head}{line}\r\n\r\n".encode())
            response = caller.makefile("rb").readline()
        assert b" 200 " in response


@pytest.mark.parametrize(
    "token", ["", " ", " leading-space-0123", "trailing-space-012 ", "a\nb" * 9, "\ud800" * 16]
)
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_token_that_no_request_can_bring_is_refused(host, token):
    with pytest.raises(UsageError):
        require_token(host, token)


@pytest.mark.parametrize(
    ("host", "status"),
    [("proxy.example", 200), ("Proxy.Example:444", 200), ("other.example", 421), ("localhost:1", 421)],
)
def test_further_hosts_are_allowed_by_name(host, status):
    access = Access.at("127.0.0.1", 8765, None, (), allowed_hosts=["proxy.example"])
    scope = {"type": "http", "path": "/predict", "headers": [(b"host", host.encode())]}
    assert (access.refusal(scope) or (200,))[0] == status


def test_a_link_to_the_page_may_come_from_anywhere_and_calls_may_not(serve):
    """As a browser asks that was sent from a local file, or from a mail."""
    page = serve("a-token-for-tests")
    link = {"Authorization": None, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert page.raw("GET", "/", headers=link)[0] == 200
    assert (
        page.raw("GET", "/api/project", headers={**link, "Authorization": "Bearer a-token-for-tests"})[0]
        == 403
    )
    assert page.raw("GET", "/", headers={**link, "Sec-Fetch-Mode": "no-cors"})[0] == 403


@pytest.fixture
def patience(monkeypatch):
    """A server that waits for a moment only."""
    monkeypatch.setattr(http_server, "IDLE_SECONDS", 1)
    monkeypatch.setattr(security, "BODY_TIMEOUT", 0.4)


def is_closed(caller, within=10.0):
    """Whether the server closes a connection; what it sends before does not count."""
    caller.settimeout(within)
    try:
        while caller.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize("authorized", [True, False])
def test_a_body_that_stalls_is_given_up(serve, patience, authorized):
    page = serve("a-token-for-tests")
    token = "Bearer a-token-for-tests" if authorized else "none"
    with socket.create_connection(("127.0.0.1", page.port)) as caller:
        head = f"POST /api/images HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\nAuthorization: {token}\r\n"
        caller.sendall(f"{head}Content-Length: 1000000\r\n\r\nhalf".encode())
        caller.settimeout(10)
        response = caller.recv(1 << 16)
        assert (b" 408 " if authorized else b" 401 ") in response.split(b"\r\n")[0]
        assert is_closed(caller)


def test_a_slow_body_that_moves_is_taken(serve, monkeypatch):
    monkeypatch.setattr(security, "BODY_TIMEOUT", 0.4)
    page = serve("a-token-for-tests")
    body = png(blotch((9, 9, 9), 1))

    def slowly():
        for place in range(0, len(body), len(body) // 8):
            yield body[place : place + len(body) // 8]
            time.sleep(0.08)

    assert page.raw("POST", "/api/images?name=x", slowly())[0] == 200


def test_a_connection_serves_many_requests_and_outlasts_its_pauses(serve, monkeypatch):
    monkeypatch.setattr(http_server, "IDLE_SECONDS", 1)
    page = serve("a-token-for-tests")
    caller = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    caller.connect()
    used = caller.sock
    for _ in range(6):
        caller.request("GET", "/api/project", headers={"Authorization": f"Bearer {page.token}"})
        assert caller.getresponse().read()
        assert caller.sock is used
        time.sleep(0.3)
    caller.close()


def test_events_go_on_while_nothing_is_sent(serve, patience):
    page = serve("a-token-for-tests")
    stream = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    stream.request("GET", "/api/events", headers={"Authorization": f"Bearer {page.token}"})
    events = stream.getresponse()
    assert events.readline() == b": connected\n"
    time.sleep(1)
    page.json("POST", "/api/edit/add_class", {"name": "cat"})
    while b"added the class cat" not in events.readline():
        pass
    stream.close()


@pytest.fixture
def started(monkeypatch):
    """Servers end as soon as they have started; yields what was said and what was opened."""
    seen = {"said": [], "opened": [], "files": []}

    def at_once(config, bound, on_start, on_stop=None):
        on_start()

    def browse(address):
        seen["opened"].append(address)
        path = Path(url2pathname(address.removeprefix("file://")))
        seen["files"].append((stat.S_IMODE(path.stat().st_mode), path.read_text("utf-8")))

    monkeypatch.setattr(http_server, "run", at_once)
    seen["options"] = {"say": seen["said"].append, "browse": browse}
    return seen


def test_a_browser_is_started_without_the_token(tmp_path, started):
    launch.open_app(tmp_path / "p", port=0, token="a token & more", **started["options"])
    (address,) = started["opened"]
    assert address.startswith("file://")
    assert "token%20" not in address
    mode, content = started["files"][0]
    assert mode == 0o600 or os.name == "nt"
    link = re.search(r"http://127\.0\.0\.1:\d+/#token=a%20token%20%26%20more", started["said"][0])[0]
    assert f"url={link}" in content
    assert not list((tmp_path / "p").glob("*.html")), "it is gone when the server is"


def test_a_project_that_is_open_already_is_shown_again(tmp_path, monkeypatch, started):
    """A second `prolip app` opens the page of the first."""
    again = []

    def run(config, bound, on_start, on_stop):
        on_start()
        launch.open_app(tmp_path / "p", **again.append(1) or started["options"])

    monkeypatch.setattr(http_server, "run", run)
    launch.open_app(tmp_path / "p", port=0, **started["options"])
    link = re.search(r"http://\S+", started["said"][0])[0]
    assert started["said"][-1].endswith(link)
    assert started["opened"] == 2 * [(tmp_path / "p" / "open-page.html").as_uri()]
    assert len(again) == 1


def test_the_next_free_port_is_taken():
    with http_server.bind("127.0.0.1", 0) as used:
        port = used.getsockname()[1]
        used.listen()
        with http_server.bind("127.0.0.1", port) as other:
            assert port < other.getsockname()[1] < port + http_server.PORTS_TRIED


@pytest.mark.parametrize("options", [{}, {"token": "sixteen-or-longer"}])
def test_a_server_for_others_says_which_header_it_needs(tmp_path, colour_model, started, options):
    colour_model.save(tmp_path / "colours")
    launch.serve([tmp_path / "colours"], "0.0.0.0", 0, say=started["said"].append, **options)
    assert ("Authorization: Bearer " in "".join(started["said"])) == (not options)


def test_a_redirect_replaces_what_is_there_and_follows_no_link(tmp_path, started):
    (tmp_path / "mine").write_text("years of work")
    with Project.open(tmp_path / "p"):
        (tmp_path / "p" / "open-page.html").symlink_to(tmp_path / "mine")
    launch.open_app(tmp_path / "p", port=0, **started["options"])
    assert (tmp_path / "mine").read_text() == "years of work"
    assert len(started["files"]) == 1


@pytest.mark.parametrize(
    "options", [{"model": ""}, {"model": " "}, {"token": ""}, {"host": ""}, {"host": " "}], ids=str
)
def test_an_empty_value_is_refused_before_anything_is_made(tmp_path, started, options):
    with pytest.raises(UsageError):
        launch.open_app(tmp_path / "p", **{"port": 0, **options})
    assert not list(tmp_path.iterdir())
    if "model" not in options:
        with pytest.raises(UsageError):
            launch.serve([tmp_path], **{"port": 0, **options})


@pytest.mark.parametrize(
    "arguments",
    [["--model", ""], ["--token", ""], ["--host", ""], ["--model", "ofline"]],
)
def test_the_command_refuses_what_cannot_be_meant(tmp_path, prolip, arguments):
    with Project.open(tmp_path / "old"):
        pass
    for name in ("old", "new"):
        code, _, error = prolip("app", tmp_path / name, "--no-browser", "--port", 0, *arguments)
        assert code != 0, error
        assert len(error.splitlines()) == 1, error
    assert not (tmp_path / "new").exists()
    assert Project.base_model(tmp_path / "old") == "offline"


def test_edits_do_not_wait_for_images(serve, monkeypatch):
    entered, go = Event(), Event()

    real = images.prepare

    def slow(data, preprocess):
        entered.set()
        assert go.wait(60)
        return real(data, preprocess)

    monkeypatch.setattr("prolip.app.page_server.prepare", slow)
    page = serve("a-token-for-tests")
    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(page.upload, png(blotch((9, 9, 9), i))) for i in range(8)]
        try:
            assert entered.wait(60)
            assert page.json("POST", "/api/edit/add_class", {"name": "cat"})[0] == 200
        finally:
            go.set()
        assert {each.result(60)[0] for each in waiting} == {200}
