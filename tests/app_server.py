"""A server in this process, on a port of its own, and calls to it as any program makes them."""

import http.client
import io
import json
import threading
import time
from contextlib import contextmanager
from urllib.parse import urlencode

TOKEN = "a-token-for-tests"


def png(image):
    """The bytes of an image file."""
    made = io.BytesIO()
    image.save(made, "PNG")
    return made.getvalue()


class Client:
    """Calls to a server; each on a connection of its own."""

    def __init__(self, port, token=TOKEN):
        self.port, self.token = port, token

    def raw(self, method, path, body=None, headers=()):
        sent = {"Authorization": f"Bearer {self.token}", **dict(headers)}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {k: v for k, v in sent.items() if v is not None})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def json(self, method, path, value=None, headers=()):
        body = None if value is None else json.dumps(value).encode()
        status, _, body = self.raw(method, path, body, headers)
        return status, json.loads(body)

    def upload(self, data, label=None, name="a.png", group="", test=False):
        query = {"name": name, "group": group, **({} if label is None else {"label": label})}
        query |= {"test": "true"} if test else {}
        status, _, body = self.raw("POST", f"/api/images?{urlencode(query)}", data)
        return status, json.loads(body)

    def add_class(self, name):
        """Add a class; returns its id."""
        return self.json("POST", "/api/edit/add_class", {"name": name})[1]["classes"][0]

    def until(self, ready):
        """The project, once `ready` says so of it."""
        for _ in range(600):
            _, found = self.json("GET", "/api/project")
            if ready(found):
                return found
            time.sleep(0.05)
        raise AssertionError(f"never came: {found['figures']}")


@contextmanager
def running(app):
    """A running server of an application; yields the port."""
    import uvicorn

    from prolip.app.launch import bind, config

    with bind("127.0.0.1", 0) as listening:  # it takes connections before the server runs
        server = uvicorn.Server(config(app))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def running_page(folder, encoder, token=TOKEN):
    """The page of a project, which may be new; yields a client."""
    from prolip.app.page_server import OPEN_PATHS, PageServer
    from prolip.app.project import Project
    from prolip.app.security import Access

    with Project.open(folder) as project:
        page = PageServer(project, encoder, Access("127.0.0.1", token, OPEN_PATHS))
        with running(page.application()) as port:
            yield Client(port, token)


def running_models(models, token=None, **rules):
    """A server of models, by name."""
    from prolip.app.predict_server import OPEN_PATHS, PredictServer
    from prolip.app.security import Access

    access = Access("127.0.0.1", token, OPEN_PATHS, **rules)
    return running(PredictServer(models, access).application())
