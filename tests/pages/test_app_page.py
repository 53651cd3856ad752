"""The app in a real browser: train, correct, label by key, try, export; and what may go wrong."""

import base64
import os
import re
import signal
import subprocess
import sys
import zipfile
from contextlib import contextmanager

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("starlette", reason="the extra `app` is not installed")
pytest.importorskip("uvicorn", reason="the extra `app` is not installed")

from app_server import png  # noqa: E402
from pictures import COLOURS, blotch  # noqa: E402
from prolip import FewShotClassifier  # noqa: E402

TOKEN = "a-token-of-the-browser-tests"
expect = sync_api.expect
expect.set_options(timeout=30_000)

# Files as they are dropped from a file manager: [name, base64] each.
DROP = """(element, files) => {
    const transfer = new DataTransfer();
    for (const [name, data] of files) {
        const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
        transfer.items.add(new File([bytes], name, {type: "image/png"}));
    }
    for (const kind of ["dragenter", "dragover", "drop"])
        element.dispatchEvent(new DragEvent(kind, {dataTransfer: transfer, bubbles: true, cancelable: true}));
}"""


@contextmanager
def program(folder, port=0, token=TOKEN, command="from prolip.cli import main; main()"):
    """`prolip app` as a user starts it; yields the process and its address."""
    arguments = ["app", str(folder), "--port", str(port), "--token", token, "--no-browser"]
    run = subprocess.Popen([sys.executable, "-c", command, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        yield run, re.search(r"http://\S+", run.stderr.readline())[0]
    finally:
        run.terminate()
        run.wait()
        errors = run.stderr.read()
        run.stderr.close()
    assert "Traceback" not in errors, errors


@pytest.fixture
def address(tmp_path):
    with program(tmp_path / "project") as (_, address):
        yield address


@pytest.fixture
def page(browser, address):
    with opened(browser, address) as page:
        yield page


@contextmanager
def opened(browser, address, title="project"):
    """The page; it asks no other server for anything, and its scripts do not fail. None: another page."""
    context = browser.new_context(accept_downloads=True)
    page = context.new_page()
    origin, elsewhere, failures = address.partition("#")[0], [], []
    if title is not None:
        page.on("request", lambda request: own(request.url, origin) or elsewhere.append(request.url))
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.on("dialog", lambda dialog: failures.append(f"a dialog: {dialog.message}"))
    page.goto(address)
    if title is not None:
        expect(page.locator("app-header h1")).to_have_text(title)
        assert "token" not in page.url
    yield page
    context.close()
    assert elsewhere == []
    assert failures == []


def own(url, origin):
    return url.startswith((origin, "blob:"))


def drop(target, pictures, names=None):
    """Drop images onto an element."""
    names = names or [f"{i}.png" for i in range(len(pictures))]
    files = [[name, base64.b64encode(png(each)).decode()] for name, each in zip(names, pictures, strict=True)]
    target.evaluate(DROP, files)


def card(page, name):
    return page.locator(f'class-card[aria-label="Class {name}"]')


def add_class(page, name):
    page.get_by_label("Name of a new class").fill(name)
    page.get_by_role("button", name="Add class").click()
    expect(card(page, name)).to_be_visible()


def blotches(name, count, offset=0):
    place = list(COLOURS).index(name)
    return [blotch(COLOURS[name], 1000 * place + offset + i) for i in range(count)]


def train(page, count=4):
    for name in COLOURS:
        add_class(page, name)
        drop(card(page, name), blotches(name, count))
    for name in COLOURS:
        expect(card(page, name).locator("[data-count]")).to_contain_text(f"{count} images, all correct")


def bars(page):
    """What the try-it pane shows: percent by class."""
    return dict(bar.locator("> span").all_inner_texts() for bar in page.locator("#bars .bar").all())


def test_train_correct_label_and_export(page, tmp_path):
    train(page)
    expect(page.locator("#score")).to_contain_text("100.0\u00a0% accuracy")

    # An image in the wrong class is noticed, and moved by one click.
    drop(card(page, "green"), [blotch(COLOURS["red"], 77)], ["odd.png"])
    suspect = page.locator("label-error-list .error").first  # the likeliest
    expect(suspect).to_contain_text("Labelled green")
    suspect.get_by_role("button", name="Move to red").click()
    expect(card(page, "red").locator("[data-count]")).to_contain_text("5 images, all correct")

    # Five images by key, and one undone.
    drop(page.locator("label-queue .panel"), blotches("blue", 6, 500))
    expect(page.locator("#queue-tiles .prediction", has_text="blue")).to_have_count(6)
    for left in range(5, 0, -1):
        page.keyboard.press("3")
        expect(page.locator("#queue-tiles .tile")).to_have_count(left)
    expect(card(page, "blue").locator("[data-count]")).to_contain_text("9 images")
    page.keyboard.press("Control+z")
    expect(card(page, "blue").locator("[data-count]")).to_contain_text("8 images")
    expect(page.locator("#queue-tiles .tile")).to_have_count(2)

    # An image that it has not seen, predicted here and by the export.
    unseen = blotch(COLOURS["green"], 4242)
    drop(page.locator("try-pane .panel"), [unseen])
    expect(page.locator("#verdict")).to_have_text(re.compile("green|None of these"))
    expect(page.locator("app-header .busy")).to_be_hidden()
    page.wait_for_timeout(800)
    shown = bars(page)
    with page.expect_download() as started:
        page.get_by_role("link", name="Download For prolip").click()
    zipfile.ZipFile(started.value.path()).extractall(tmp_path / "out")
    clf = FewShotClassifier.load(tmp_path / "out" / "project-prolip")
    answers = clf.predict_proba([unseen])[0]
    outcome = {name: f"{100 * p:.0f}\u00a0%" for name, p in zip(clf.classes_, answers, strict=True)}
    assert shown == outcome


def test_the_camera_adds_images_and_is_predicted(page):
    train(page)
    page.locator("try-pane").get_by_role("button", name="Camera").click()
    expect(page.locator("#bars .bar")).to_have_count(3)
    page.locator("try-pane").get_by_role("button", name="Stop camera").click()
    card(page, "red").get_by_role("button", name="Camera").click()
    take = card(page, "red").get_by_role("button", name="Take image")
    expect(take).to_be_focused()
    page.wait_for_timeout(500)
    page.keyboard.press("Enter")
    expect(card(page, "red").locator("[data-count]")).to_contain_text("5 images")


def test_a_folder_of_folders_becomes_classes_and_sure_predictions_are_accepted(page, tmp_path):
    for name in COLOURS:
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i, image in enumerate(blotches(name, 6)):
            image.save(tmp_path / "photos" / name / f"{i}.png")
    (tmp_path / "photos" / "red" / "notes.txt").write_text("not an image")
    page.locator("class-grid > .new input[type=file]").set_input_files(tmp_path / "photos")
    for name in COLOURS:
        expect(card(page, name).locator("[data-count]")).to_contain_text("6 images, all correct")
    drop(page.locator("label-queue .panel"), blotches("red", 2, 500) + blotches("blue", 2, 500))
    accept = page.get_by_role("button", name=re.compile("Label . sure prediction"))
    accept.click()
    expect(accept).to_be_hidden()
    assert page.locator("class-card .tile").count() > 18

    # They are marked, listed, removed and confirmed by one click, and trained on only then.
    marked = page.locator("class-card .tile[data-mark='by model']")
    expect(marked.first).to_be_visible()
    count = marked.count()
    expect(page.locator("#score")).to_contain_text("18 images")
    page.get_by_role("button", name="Look at them").click()
    expect(page.get_by_role("dialog").locator(".tile")).to_have_count(count)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Remove these labels").click()
    expect(marked).to_have_count(0)
    expect(page.locator("label-queue .machine")).to_be_hidden()
    accept.click()
    page.get_by_role("button", name="They are right").click()
    expect(marked).to_have_count(0)
    expect(page.locator("#score")).to_contain_text(f"{18 + count} images")


def test_hostile_names_are_text(page):
    name = "<img src=x onerror=alert(1)>\"'&"
    page.get_by_label("Name of a new class").fill(name)
    page.get_by_role("button", name="Add class").click()
    expect(page.get_by_label("Name of the class")).to_have_value(name)
    drop(page.locator("class-card"), blotches("red", 1), ["../<script>alert(2)</script>.png"])
    tile = page.locator("class-card .tile")
    expect(tile).to_have_attribute("aria-label", f"../<script>alert(2)</script>.png, {name}")
    tile.click()
    expect(page.locator("image-dialog figcaption")).to_contain_text("<script>")
    assert page.locator("script[src]").count() == 1


def test_a_file_that_is_not_an_image_is_reported(page):
    add_class(page, "red")
    files = [["x.png", base64.b64encode(b"no picture").decode()]]
    card(page, "red").evaluate(DROP, files)
    expect(page.get_by_role("status").filter(has_text="refused")).to_contain_text("x.png")
    expect(card(page, "red").locator("[data-count]")).to_have_text("No images yet")


def test_the_server_dies_and_comes_back(browser, tmp_path):
    with program(tmp_path / "project") as (run, address), opened(browser, address) as page:
        add_class(page, "red")
        drop(card(page, "red"), blotches("red", 3))
        expect(card(page, "red").locator(".tile")).to_have_count(3)
        os.kill(run.pid, signal.SIGKILL)
        expect(page.get_by_role("alert")).to_contain_text("The program has stopped")
        run.wait()
        port = int(re.search(r":(\d+)/", address)[1])
        with program(tmp_path / "project", port):
            expect(page.get_by_role("alert")).to_be_hidden(timeout=30_000)
            expect(card(page, "red").locator(".tile")).to_have_count(3)
            add_class(page, "green")


@pytest.mark.parametrize("hash", ["", "#token=an-old-token-1"])
def test_a_browser_without_the_token_is_let_in_by_the_printed_address(browser, address, hash):
    context = browser.new_context()
    page = context.new_page()
    page.goto(address.partition("#")[0] + hash)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("no token")
    assert page.get_by_role("alert").count() == 0, "the program has not stopped"
    assert page.evaluate(AUDIT) == []
    dialog.get_by_label("Address or token").fill(address)
    dialog.get_by_role("button", name="Open").click()
    expect(dialog).to_be_hidden()
    expect(page.locator("app-header h1")).to_have_text("project")
    add_class(page, "cat")
    context.close()


def test_a_redirect_file_leads_to_the_page(browser, tmp_path, address):
    from prolip.app.launch import redirect_file

    file = tmp_path / "open.html"
    with redirect_file(address, file), opened(browser, file.as_uri(), None) as page:
        expect(page.locator("app-header h1")).to_have_text("project")
        expect(page.locator("connection-banner [role=alert]")).to_be_hidden()


def test_two_windows_agree(browser, page, address):
    with opened(browser, address) as other:
        add_class(page, "red")
        expect(card(other, "red")).to_be_visible()
        card(other, "red").get_by_label("Name of the class").fill("crimson")
        page.keyboard.press("Tab")
        other.keyboard.press("Enter")
        expect(card(page, "crimson")).to_be_visible()
        card(page, "crimson").locator("summary").click()
        card(page, "crimson").get_by_role("button", name="Remove class").click()
        expect(other.locator("class-card")).to_have_count(0)


def test_by_keyboard_alone(page):
    """Name two classes, select images in the queue with Shift, label them: no mouse."""
    page.get_by_label("Name of a new class").focus()
    for name in ("red", "green"):  # the second while the first is on its way
        page.keyboard.type(name)
        page.keyboard.press("Enter")
    expect(card(page, "red")).to_be_visible()
    expect(card(page, "green")).to_be_visible()
    page.keyboard.type("red")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Name of a new class")).to_have_value("red")  # refused: there is one
    drop(page.locator("label-queue .panel"), blotches("red", 4))
    expect(page.locator("#queue-tiles .tile")).to_have_count(4)
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.locator("#queue-tiles .tile:focus").count():
            break
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    expect(page.get_by_role("button", name="All 3 are red")).to_be_visible()
    page.keyboard.press("1")
    expect(page.locator("#queue-tiles .tile")).to_have_count(1)
    expect(page.locator("#queue-tiles .tile")).to_be_focused()
    expect(card(page, "red").locator("[data-count]")).to_contain_text("3 images")


AUDIT = """() => {
    const name = (e) =>
        e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.[0]?.textContent || e.title;
    const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
    const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const light = (colour) =>
        [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => sum + weight * linear(colour[i] / 255), 0);
    const behind = (e) => {
        for (; e; e = e.parentElement) {
            const colour = rgb(getComputedStyle(e).backgroundColor);
            if (colour.length < 4 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const found = [];
    for (const e of document.querySelectorAll("button, input:not([type=file]), select, a"))
        if (e.offsetParent && !name(e)) found.push(`no name: ${e.outerHTML.slice(0, 120)}`);
    for (const e of document.querySelectorAll("img:not([alt])")) found.push(`no alt: ${e.outerHTML}`);
    for (const e of document.querySelectorAll("body *")) {
        const own = [...e.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!own || !e.offsetParent || e.closest("svg, :disabled, .skip, confusion-matrix td")) continue;
        const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(1)}: ${e.outerHTML.slice(0, 120)}`);
    }
    const width = document.documentElement.scrollWidth;
    if (width > innerWidth) found.push(`wider than the window: ${width}`);
    return found;
}"""


def test_names_contrast_and_width_in_light_and_dark_on_desk_and_phone(page):
    train(page, 3)
    drop(page.locator("label-queue .panel"), blotches("green", 3, 300))
    drop(page.locator("try-pane .panel"), blotches("green", 1, 900))
    expect(page.locator("#bars .bar")).to_have_count(3)
    expect(page.locator("learning-curve svg")).to_be_visible()
    page.locator("class-card summary").first.click()
    for width in (1280, 400):
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(300)
            assert page.evaluate(AUDIT) == [], (width, scheme)


def test_a_cell_of_the_confusion_matrix_shows_its_images_and_they_move(page):
    train(page)
    drop(card(page, "green"), [blotch(COLOURS["red"], 77)], ["odd.png"])
    cell = page.get_by_role("button", name=re.compile("green predicted as red: 1 of 5"))
    cell.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("odd.png")
    dialog.get_by_label("Move the selected images to").select_option(label="red")
    expect(card(page, "red").locator("[data-count]")).to_contain_text("5 images")
    expect(dialog).to_be_hidden()


def test_an_empty_class_is_filled_by_a_search_and_more_like_this(page):
    for name in COLOURS:
        add_class(page, name)
    drop(page.locator("label-queue .panel"), [each for name in COLOURS for each in blotches(name, 6)])
    expect(page.locator("#queue-tiles .tile")).to_have_count(18)
    encoded = "() => fetch('api/project').then((found) => found.json()).then((all) => all.waiting === 0)"
    page.wait_for_function(encoded, polling=200)
    page.get_by_label("Search images without a class").fill("a blue picture")
    for _ in range(20):  # a search lists the images that are encoded by then
        page.keyboard.press("Enter")
        expect(page.get_by_text("the nearest to “a blue picture” first")).to_be_visible()
        page.wait_for_timeout(300)
        if page.locator("#queue-tiles .tile").count() == 18:
            break
    selected = page.locator("#queue-tiles .tile[aria-selected=true]")
    expect(selected).to_have_count(0)
    blue = [page.locator(f"#queue-tiles .tile[title^='{i}.png']") for i in (12, 15)]  # names are by place
    for each in blue:
        each.click()
    expect(selected).to_have_count(2)
    page.get_by_role("button", name="More like these").click()
    expect(page.get_by_text("the nearest to these images first")).to_be_visible()
    expect(selected).to_have_count(2)
    for i in range(2, 6):
        page.locator("#queue-tiles .tile").nth(i).click()
    page.get_by_role("button", name="All 6 are blue").click()
    expect(card(page, "blue").locator("[data-count]")).to_contain_text("6 images")
    titles = card(page, "blue").locator(".tile").evaluate_all("all => all.map((one) => one.title)")
    assert sorted(int(title.split(".")[0]) for title in titles) == list(range(12, 18))

    # By the name of a class, from its card, and back to all.
    card(page, "red").get_by_role("button", name="Find").click()
    expect(page.locator("#queue-tiles .tile").first).to_be_focused()
    expect(page.locator("label-queue .keys .primary")).to_contain_text("red")
    page.get_by_role("button", name="Show all", exact=True).click()
    expect(page.get_by_text("12 images without a class, the most useful first")).to_be_visible()


def test_a_click_enlarges_an_image(page):
    add_class(page, "red")
    drop(card(page, "red"), [each.resize((900, 700)) for each in blotches("red", 2)])
    card(page, "red").locator(".tile").first.click()
    image = page.locator("image-dialog .large img")
    expect(image).to_be_visible()
    small = image.bounding_box()
    page.get_by_role("button", name="Enlarge").click()
    large = image.bounding_box()
    assert small["width"] > 500
    assert large["width"] > 1.4 * small["width"]
    assert image.evaluate("one => one.decode().then(() => one.naturalWidth)") == 900
    page.get_by_role("button", name="Show the other images").click()
    expect(page.get_by_role("dialog").locator(".tile")).to_have_count(2)


HUB_MODEL = """
from prolip.encoders import MODELS
from prolip.encoders.pretrained import PretrainedModel
MODELS["clip"] = PretrainedModel("Tiny", "owner/tiny", "fp32", 1, "MIT", recommended=True)
from prolip.cli import main
main()
"""


def test_another_base_model_is_downloaded_used_and_left(browser, tmp_path, monkeypatch):
    from graph_models import write_graphs
    from hub_server import serving

    write_graphs(tmp_path / "hub" / "owner" / "tiny")
    with serving(tmp_path / "hub") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        with (
            program(tmp_path / "project", command=HUB_MODEL) as (_, address),
            opened(browser, address) as page,
        ):
            train(page)
            menu = page.locator("model-menu > button")
            expect(menu).to_have_text("Base model: offline · better: clip (1 MB) ▾")
            menu.click()
            dialog = page.get_by_role("dialog")
            expect(dialog).to_contain_text("recommended · Tiny · 1 MB to download · licence: MIT")
            expect(dialog.get_by_role("button", name="In use: offline")).to_be_disabled()
            assert page.evaluate(AUDIT) == []
            dialog.get_by_role("button", name="Download and use: clip", exact=True).click()
            expect(menu).to_have_text("Base model: clip ▾")
            expect(page.locator("app-header .busy")).to_be_hidden()
            assert page.evaluate(AUDIT) == []
            menu.click()
            dialog.get_by_role("button", name="Use: offline", exact=True).click()
            expect(page.locator("#score")).to_contain_text("100.0\u00a0% accuracy")


def test_sample_photos_show_everything_at_once(page):
    page.get_by_role("button", name="Add sample photos").click()
    expect(page.locator("class-card")).to_have_count(4)
    expect(page.locator("#score")).to_contain_text("accuracy")
    expect(page.locator("#queue-tiles .tile")).to_have_count(16)
    expect(page.get_by_role("button", name="Add sample photos")).to_be_hidden()


def test_train_and_test_folders_are_kept_apart(page, tmp_path):
    for part, count in (("train", 4), ("test", 2)):
        for name in COLOURS:
            (tmp_path / "set" / part / name).mkdir(parents=True)
            for i, image in enumerate(blotches(name, count, 100 * len(part))):
                image.save(tmp_path / "set" / part / name / f"{i}.png")
    page.locator("class-grid > .new input[type=file]").set_input_files(tmp_path / "set")
    for name in COLOURS:
        expect(card(page, name).locator("[data-count]")).to_contain_text("6 images (2 for testing)")
    expect(page.locator("#score")).to_contain_text("12 images")
    expect(page.locator("#test-score")).to_contain_text("100.0\u00a0% of 6 test images")
    expect(page.locator("class-card .tile[data-mark=test]")).to_have_count(6)


def test_images_are_dragged_between_classes_and_into_a_new_one(page):
    page.set_viewport_size({"width": 1280, "height": 2400})  # a drag does not scroll
    train(page)
    card(page, "red").locator(".tile").first.drag_to(card(page, "green"))
    expect(card(page, "red").locator("[data-count]")).to_contain_text("3 images")
    expect(card(page, "green").locator("[data-count]")).to_contain_text("5 images, 1 misclassified")
    mistake = card(page, "green").locator(".tile[data-mistake$='→ red']")
    expect(mistake).to_have_attribute("aria-label", re.compile("misclassified as red"))
    mistake.drag_to(page.locator("label-queue .panel"))
    expect(page.locator("#queue-tiles .tile")).to_have_count(1)
    page.locator("#queue-tiles .tile").drag_to(page.locator("class-grid > .new"))
    page.get_by_role("dialog").get_by_role("textbox").fill("crimson")
    page.keyboard.press("Enter")
    expect(card(page, "crimson").locator("[data-count]")).to_contain_text("1 image")


def test_a_new_class_of_selected_images(page):
    add_class(page, "red")
    drop(page.locator("label-queue .panel"), blotches("green", 4))
    expect(page.locator("#queue-tiles .tile")).to_have_count(4)
    page.locator("#queue-tiles .tile").nth(0).click()
    page.locator("#queue-tiles .tile").nth(2).click(modifiers=["Shift"])
    page.get_by_role("button", name="New class …").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("green")
    page.get_by_role("dialog").get_by_role("button", name="Add class").click()
    expect(card(page, "green").locator("[data-count]")).to_contain_text("3 images")
    expect(page.locator("#queue-tiles .tile")).to_have_count(1)


def test_removing_a_class_is_undone_from_its_message(page):
    train(page)
    card(page, "red").locator("summary").click()
    card(page, "red").get_by_role("button", name="Remove class").click()
    expect(page.locator("class-card")).to_have_count(2)
    page.locator("toast-line").get_by_role("button", name="Undo").click()
    expect(card(page, "red").locator("[data-count]")).to_contain_text("4 images")


def test_a_late_prediction_does_not_replace_a_newer_one_and_a_correction_is_said(page):
    train(page)
    waiting = []

    def hold(route):
        if waiting:
            route.continue_()
        else:
            waiting.append(route)

    page.route("**/api/try", hold)
    drop(page.locator("try-pane .panel"), blotches("red", 1, 800))
    page.wait_for_timeout(300)
    drop(page.locator("try-pane .panel"), blotches("green", 1, 800))
    expect(page.locator("#verdict")).to_have_text(re.compile("green|None of these"))
    waiting[0].continue_()
    page.wait_for_timeout(700)
    expect(page.locator("#bars .bar").first).to_contain_text("green")
    page.locator("try-pane select").select_option(label="blue")
    expect(page.locator("try-pane .note")).to_contain_text("in the project, labelled blue")


def test_photos_and_the_report_are_downloaded(page, tmp_path):
    train(page)
    with page.expect_download() as started:
        page.get_by_role("link", name="Download Labelled photos").click()
    zipfile.ZipFile(started.value.path()).extractall(tmp_path / "photos")
    clf = FewShotClassifier(store=False).fit(tmp_path / "photos")
    assert list(clf.classes_) == sorted(COLOURS)
    assert len(list((tmp_path / "photos").rglob("*.png"))) == 12
    with page.expect_download(timeout=120_000) as started:
        page.get_by_role("link", name="Download Report").click()
    report = started.value.path().read_text("utf-8")
    assert started.value.suggested_filename == "project-report.html"
    assert report.count("data:image/jpeg") >= 3


def test_a_class_none_of_these_teaches_rejection_and_is_no_class(page):
    train(page)
    add_class(page, "none of these")
    drop(card(page, "none of these"), [blotch((120, 40, 150), seed) for seed in range(6)])
    expect(card(page, "none of these").locator("[data-count]")).to_have_text(
        "6 images of none of the classes: they teach what “none of these” is"
    )
    expect(page.locator("#score")).to_contain_text("12 images")
    drop(page.locator("try-pane .panel"), [blotch((120, 40, 150), 77)])
    expect(page.locator("#verdict")).to_have_text("None of these")
    expect(page.locator("#bars .bar")).to_have_count(3)
