"""Who may call a server and who may not; and how the commands start one."""

import asyncio
import json
import os
import re
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import url2pathname

import pytest

pytest.importorskip("starlette", reason="the extra `app` is not installed")
pytest.importorskip("uvicorn", reason="the extra `app` is not installed")

from starlette.exceptions import HTTPException

from app_server import TOKEN, Client, png, running_models, running_page
from pictures import blotch
from prolip.app import launch
from prolip.app.project import Project
from prolip.app.security import Access, AccessMiddleware, require_token
from prolip.core import UsageError


@pytest.fixture
def page(tmp_path, offline):
    with running_page(tmp_path / "p", offline) as page:
        yield page


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer schlüssel".encode()}, 401),
        ({"Authorization": None, "Cookie": "prolip-1=x; ;=;"}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:8765"}, 421),
        ({"Host": "localhost:1"}, 200),  # a forwarded port
        ({"Host": "[::1]:8765"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        ({"Origin": "http://localhost:1", "Host": "localhost:1"}, 200),
        ({}, 200),
    ],
)
def test_who_may_call(page, headers, status):
    assert page.raw("GET", "/api/project", headers=headers)[0] == status


@pytest.mark.parametrize("foreign", ['prefs={"dark":true}', "name=müller", "=;;= ; ,"])
def test_a_session_begins_with_the_token_and_cookies_of_other_programs_do_not_end_it(page, foreign):
    for wrong in (b'{"token": "wrong"}', b'{"token": "\\ud800"}', b"{}"):
        assert page.raw("POST", "/api/session", wrong, {"Authorization": None})[0] == 401
    body = json.dumps({"token": TOKEN}).encode()
    status, headers, _ = page.raw("POST", "/api/session", body, {"Authorization": None})
    cookie, _, attributes = headers["set-cookie"].partition(";")
    assert status == 200
    assert "httponly; path=/; samesite=strict" in attributes.lower()
    assert TOKEN not in cookie
    name = cookie.partition("=")[0]
    for line in (f"{foreign}; {cookie}", f"{cookie}; {foreign}", f"{name}=wrong; {foreign};{cookie}"):
        sent = {"Authorization": None, "Cookie": line.encode()}
        assert page.raw("GET", "/api/project", headers=sent)[0] == 200


@pytest.mark.parametrize(
    "token", ["", " ", "two words of a token", "schlüssel-für-später", "a\nb" * 9, "\ud800" * 16]
)
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_token_that_a_header_cannot_have_is_refused(host, token):
    with pytest.raises(UsageError):
        require_token(host, token)


@pytest.mark.parametrize(
    ("host", "own"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("box", False)]
)
def test_others_need_a_token(host, own):
    first, second = (require_token(host, None) for _ in range(2))
    assert (first is None) == own
    if not own:
        assert len(first) >= 32
        assert first != second
    with pytest.raises(UsageError):
        require_token(host, "x" * 15)
    assert require_token(host, "x" * 16) == "x" * 16


@pytest.mark.parametrize(
    ("host", "status"), [("proxy.example", 200), ("Proxy.Example:444", 200), ("other.example", 421)]
)
def test_further_hosts_are_allowed_by_name(host, status):
    access = Access("127.0.0.1", None, allowed_hosts=["proxy.example:443"])
    scope = {"type": "http", "path": "/predict", "headers": [(b"host", host.encode())]}
    assert (access.refusal(scope) or (200,))[0] == status


@pytest.mark.parametrize("allowed", ["https://Shop.example/", "*"])
def test_pages_of_allowed_origins_may_send_requests(colour_model, allowed):
    site = {"Origin": "https://shop.example"}
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    with running_models({"colours": colour_model.model_}, TOKEN, origins=[allowed]) as port:
        client = Client(port)
        headers = {**site, **preflight, "Authorization": None}
        status, headers, _ = client.raw("OPTIONS", "/predict", None, headers)
        assert (status, headers["access-control-allow-methods"]) == (200, "GET, POST")
        status, headers, _ = client.raw("POST", "/predict", png(blotch((200, 40, 40), 200)), site)
        assert status == 200
        assert headers["access-control-allow-origin"] == ("*" if allowed == "*" else site["Origin"])
        status, headers, _ = client.raw("GET", "/models", None, {**site, "Authorization": None})
        assert status == 401  # the token is needed all the same, and the page may read why
        assert "access-control-allow-origin" in headers
        status, *_ = client.raw("GET", "/models", None, {"Origin": "https://other.example"})
        assert status == (200 if allowed == "*" else 403)


def test_the_bytes_of_a_body_are_counted():
    async def app(scope, receive, send):
        while (await receive())["more_body"]:
            pass

    async def receive():
        return {"type": "http.request", "body": bytes(300), "more_body": True}

    middleware = AccessMiddleware(app, Access("0.0.0.0", None), 1000)
    request = middleware({"type": "http", "path": "/", "headers": []}, receive, None)
    with ThreadPoolExecutor(1) as apart, pytest.raises(HTTPException) as error:
        apart.submit(asyncio.run, request).result()
    assert error.value.status_code == 413


@pytest.fixture
def started(monkeypatch):
    """Servers end as soon as they have started; yields what was said and what was opened."""
    seen = {"said": [], "opened": [], "files": []}

    def browse(address):
        seen["opened"].append(address)
        path = Path(url2pathname(address.removeprefix("file://")))
        seen["files"].append((stat.S_IMODE(path.stat().st_mode), path.read_text("utf-8")))

    monkeypatch.setattr(launch, "run", lambda *_, **options: None)
    seen["options"] = {"port": 0, "say": seen["said"].append, "browse": browse}
    return seen


def test_a_browser_is_started_without_the_token(tmp_path, started):
    (tmp_path / "mine").write_text("years of work")
    with Project.open(tmp_path / "p"):  # a link that is left is not followed
        (tmp_path / "p" / "open-page.html").symlink_to(tmp_path / "mine")
    launch.open_app(tmp_path / "p", token="a-token-of-16~+/=", **started["options"])
    assert started["opened"] == [(tmp_path / "p" / "open-page.html").as_uri()]
    ((mode, content),) = started["files"]
    assert mode == 0o600 or os.name == "nt"
    link = re.search(r"http://127\.0\.0\.1:\d+/#token=a-token-of-16~\+/=", started["said"][0])[0]
    assert f"url={link}" in content
    assert not list((tmp_path / "p").glob("*.html")), "it is gone when the server is"
    assert (tmp_path / "mine").read_text() == "years of work"


def test_a_project_that_is_open_already_is_shown_again(tmp_path, monkeypatch, started):
    def run(*_, **options):
        launch.open_app(tmp_path / "p", **started["options"])

    monkeypatch.setattr(launch, "run", run)
    launch.open_app(tmp_path / "p", **started["options"])
    link = re.search(r"http://\S+", started["said"][0])[0]
    assert started["said"][-1].endswith(link)
    assert started["opened"] == 2 * [(tmp_path / "p" / "open-page.html").as_uri()]


def test_the_next_free_port_is_taken():
    with launch.bind("127.0.0.1", 0) as used:
        port = used.getsockname()[1]
        with launch.bind("127.0.0.1", port) as other:
            assert port < other.getsockname()[1] < port + launch.PORTS_TRIED
            assert other.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("options", [{}, {"token": "sixteen-or-longer"}])
def test_a_server_for_others_says_which_header_it_needs(tmp_path, colour_model, started, options):
    colour_model.save(tmp_path / "colours")
    launch.serve([tmp_path / "colours"], "0.0.0.0", 0, say=started["said"].append, **options)
    assert ("Authorization: Bearer " in "".join(started["said"])) == (not options)
