"""The pages of `prolip serve` in a real browser, wide and light, narrow and dark."""

import pytest

from app_server import png, running_models
from pictures import COLOURS, blotch

pytestmark = pytest.mark.browser

TOKEN = "se~cret"


@pytest.fixture(scope="module")
def port(colour_model):
    with running_models({"colours": colour_model.model_, "<b>": colour_model.model_}, TOKEN) as port:
        yield port


@pytest.fixture(params=[(1280, "light"), (400, "dark")], ids=["1280 light", "400 dark"])
def page(browser, request):
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    yield page
    context.close()


def give_token(page):
    for token in ("wrong", TOKEN):
        page.get_by_label("token").fill(token)
        page.get_by_role("button", name="Continue").click()
    page.locator("dialog").wait_for(state="detached")


def test_an_image_is_sent_and_its_prediction_shown(page, port, colour_model, tmp_path):
    address = f"http://127.0.0.1:{port}"
    image = blotch(COLOURS["green"], 900)
    (tmp_path / "a.png").write_bytes(png(image))
    page.goto(f"{address}/")
    give_token(page)
    page.locator("#about", has_text="3 classes (blue, green, red)").wait_for()
    page.locator("#file").set_input_files(tmp_path / "a.png")
    page.locator("#top tr").first.wait_for()
    expected = colour_model.predict_proba([image])[0].max()
    assert page.locator("#prediction").inner_text() == f"green, {100 * expected:.0f}\u00a0%"
    assert page.locator("#top tr").count() == 3
    page.get_by_label("Model").select_option("<b>")
    page.get_by_label("Reject").check()
    curl = page.locator("#curl").inner_text()
    assert f'"{address}/predict?model=%3Cb%3E&reject=true"' in curl
    assert TOKEN not in curl
    (tmp_path / "b.png").write_bytes(b"no image")
    page.locator("#file").set_input_files(tmp_path / "b.png")
    page.locator("#prediction.bad").wait_for()
    assert page.locator("#top tr").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
