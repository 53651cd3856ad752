"""A real browser, where there is one: Chromium, driven by Playwright."""

import os
import shutil

import pytest

FLAGS = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def browser_path():
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def browser():
    """One browser for all tests of a process: Playwright cannot be started twice in it."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="pages are tested with playwright: pip install it"
    )
    if browser_path() is None:
        pytest.skip("no chromium was found: apt-get install chromium, or set CHROMIUM to its path")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(params=[(1280, "light"), (400, "dark")], ids=["1280 light", "400 dark"])
def visit(browser, request):
    """Open a file; the page, and every address that it asked for besides the file itself."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)

    def go(path):
        page, asked = context.new_page(), []
        page.on("request", lambda one: asked.append(one.url) if not one.url.startswith("data:") else None)
        page.on("pageerror", lambda error: pytest.fail(str(error)))
        page.on("dialog", lambda _: pytest.fail("a name ran as a program"))
        page.goto(path.resolve().as_uri())
        return page, asked

    yield go
    context.close()
