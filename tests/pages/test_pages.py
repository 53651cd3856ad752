"""The pages in a real browser, wide and light, narrow and dark."""

import numpy as np
import pytest

from feature_models import fit_features
from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.api.evaluate import evaluate_support
from prolip.api.grow import rename_classes
from prolip.report import model_page
from prolip.report.page import chart, section
from prolip.report.page import page as make_page

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=alert(1)>"
NAME = "it's $(this) again.png"


@pytest.fixture(scope="module")
def report(offline, tmp_path_factory):
    """A page on a model and labels of which a third are wrong; one class has a hostile name."""
    from prolip.api.evaluate import evaluate_images
    from prolip.data import ImageSet

    images = [blotch(colour, 10 * k + i) for k, colour in enumerate(COLOURS.values()) for i in range(4)]
    clf = FewShotClassifier(offline, "prolip", options={"lam": 0.3}, store=False)
    clf.fit(images, [name for name in COLOURS for _ in range(4)])
    model = rename_classes(clf.model_, {"blue": HOSTILE})
    asked = [blotch(colour, 300 + i) for colour in COLOURS.values() for i in range(6)]
    labelled = ImageSet(asked, [2, 2, 2, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 2], list(model.classes))
    answers = evaluate_images(model, labelled, clf.reading)
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(
        model_page(model, answers, title="<i>model</i>", source="a folder", curve="Not known."),
        encoding="utf-8",
    )
    return path


def test_a_cell_of_the_matrix_shows_its_images(visit, report):
    page, asked = visit(report)
    cell = page.locator('#matrix button[data-key="1,2"]')  # labelled green, predicted red
    assert cell.inner_text() == "2"
    cell.click()
    assert page.locator("#cell h3").inner_text() == "green predicted as red: 2 images"
    pictures = page.locator("#cell img")
    assert pictures.count() == 2
    assert pictures.first.evaluate("image => image.complete && image.naturalWidth > 0")
    assert page.locator("#cell .bad").first.inner_text().startswith("predicted: red")
    assert asked == [report.resolve().as_uri()]  # no request leaves the page


def test_the_matrix_is_walked_with_the_keyboard(visit, report):
    page, _ = visit(report)
    first = page.locator("#matrix tbody button").first
    first.focus()
    page.keyboard.press("ArrowRight")
    here = page.evaluate("document.activeElement.dataset.key")
    assert here != first.get_attribute("data-key")
    page.keyboard.press("Enter")
    assert page.locator("#cell img").count() > 0
    stops = page.locator('#matrix tbody button[tabindex="0"]')
    assert stops.count() == 1


def test_names_are_text(visit, report):
    page, _ = visit(report)
    assert page.locator("h1").inner_text() == "<i>model</i>"
    assert page.locator("#matrix tbody th").first.inner_text() == HOSTILE
    assert page.locator('img[src="x"]').count() == 0
    page.locator("button[data-cell]").first.click()
    assert page.locator("#cell .image").count() > 0


def test_nothing_sticks_out_of_the_window(visit, report):
    page, _ = visit(report)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert (sum(map(int, ground[4:-1].split(","))) < 384) == dark


def test_a_click_enlarges_an_image_and_arrows_go_on(visit, report):
    page, _ = visit(report)
    frames = page.locator("button.frame")
    small = frames.nth(1).locator("img").bounding_box()["width"]
    frames.nth(1).click()
    large = page.locator("dialog.viewer img")
    assert large.bounding_box()["width"] > 2 * small
    assert large.get_attribute("src") == frames.nth(1).locator("img").get_attribute("src")
    page.keyboard.press("ArrowRight")
    assert large.get_attribute("src") == frames.nth(2).locator("img").get_attribute("src")
    page.keyboard.press("Escape")
    assert not page.locator("dialog.viewer").is_visible()
    image = frames.nth(2).get_attribute("data-image")
    page.locator(f'button.frame[data-image="{image}"]:focus').wait_for()  # after the event of closing


def test_a_column_sorts_the_classes(visit, report):
    page, _ = visit(report)
    head = page.locator("table.sortable thead button", has_text="accuracy")
    column = "table.sortable tbody tr td:nth-child(4)"
    head.click()
    falling = [float(text.split()[0]) for text in page.locator(column).all_inner_texts()]
    head.click()
    rising = [float(text.split()[0]) for text in page.locator(column).all_inner_texts()]
    assert falling == sorted(falling, reverse=True)
    assert rising == falling[::-1]


def test_charts_are_drawn(visit, tmp_path):
    ahead = {"accuracy": 0.8, "low": 0.7, "high": 0.9}
    curve = {
        "points": [
            {"shots": 1, "accuracy": 0.5, "spread": 0.1},
            {"shots": 2, "accuracy": 0.7, "spread": 0.05},
        ],
        "now": {"shots": 4, **ahead},
        "forecasts": [{"shots": 8, **ahead, "gain": 0.0}],
    }
    charts = {"learningCurve": curve, "calibrationChart": [None, [3, 0.15, 0.1, 0.0, 0.5]]}
    path = tmp_path / "charts.html"
    sections = [section(kind, chart(kind, data)) for kind, data in charts.items()]
    path.write_text(make_page("charts", "", sections), encoding="utf-8")
    page, _ = visit(path)
    assert page.locator("svg.chart").count() == 2
    assert [page.locator(f'[data-chart="{kind}"] .mark').count() for kind in charts] == [2, 1]
    assert page.locator('[data-chart="learningCurve"] .band').count() == 1
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_two_hundred_classes(visit, tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 64))
    y = np.repeat(np.arange(200), 4)
    model = fit_features(rows[y] + rng.normal(0, 2.0, (800, 64)), y, rows, "prolip", lam=0.5)
    path = tmp_path / "many.html"
    answers = evaluate_support(model)
    path.write_text(model_page(model, answers, title="many", source="x", curve="-"), encoding="utf-8")
    page, _ = visit(path)
    assert page.locator("#matrix tbody tr").count() == 40
    page.get_by_role("button", name="Show all 200 classes").click()
    assert page.locator("#matrix tbody tr").count() == 200
    total = page.locator("#matrix tbody button").evaluate_all(
        "all => all.reduce((n, one) => n + Number(one.textContent), 0)"
    )
    assert total == len(answers.y)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
