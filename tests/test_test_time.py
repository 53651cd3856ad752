"""Test-time adaptation: the closed form against autograd, and one image's step against none of another's."""

import json

import pytest
import torch
from torch.testing import assert_close

import prolip
from prolip import methods
from prolip.core import Head, InputError, Projected, Text, UsageError
from prolip.core.arrays import unit_rows
from prolip.encoders import load
from prolip.methods import test_time
from prolip.methods.prompts.words import Prompts, phrase_embedding
from tiny_models import TOWERS, tower_task, write_folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("towers") / "vit", TOWERS["vit"])
    return load(f"open_clip:local-dir:{folder}", "cpu")


def problem(kind, seed=0, views=8, images=5):
    """Random views [V, n, width] and a model to start from; float64, so that roundings do not blur."""
    g = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    bias = None if kind == "plain" else random(6)
    head = Head(random(10, 6), bias, residual=kind == "residual")
    text = Text(random(4, 6), ("cat", "dog", "bird", "fish"))
    return random(views, images, head.width), Projected(head, text, 5.0)


def by_autograd(x, start, way):
    """Each image on its own, with torch's AdamW."""
    scores = []
    for views in x.transpose(0, 1):  # [V, width]
        weight = torch.nn.Parameter(start.head.weight.clone())

        def logits(views, weight=weight):
            inputs, fixed = start.head.split(views)
            v = inputs @ weight + (0 if fixed is None else fixed)
            return start.scale * unit_rows(v) @ start.text.rows.T

        p = logits(views).softmax(dim=1)
        surest = (-(p * p.log()).sum(dim=1)).argsort()[: max(1, int(way.views * way.rho))]
        q = logits(views[surest]).softmax(dim=1).mean(dim=0)
        optimizer = torch.optim.AdamW([weight], lr=way.lr, weight_decay=way.weight_decay, eps=way.eps)
        (-(q * q.log()).sum()).backward()
        optimizer.step()
        scores.append(logits(views[:1])[0].detach())
    return torch.stack(scores)


@pytest.mark.parametrize("kind", ["plain", "bias", "residual"])
@pytest.mark.parametrize("rho", [0.1, 0.5, 1.0])
def test_the_closed_form_is_a_step_of_adamw(kind, rho):
    x, start = problem(kind)
    way = test_time.TestTimeProLIP(lr=0.05, views=8, rho=rho)
    assert_close(way.logits(x, start), by_autograd(x, start, way), atol=1e-8, rtol=1e-8)


def test_small_chunks_change_nothing(monkeypatch):
    x, start = problem("bias", images=7)
    way = test_time.TestTimeProLIP(lr=0.05, views=8)
    together = way.logits(x, start)
    monkeypatch.setattr(test_time, "_NUMBERS_AT_ONCE", 150)  # two images at a time
    assert_close(way.logits(x, start), together)


def test_every_image_starts_from_the_same_model():
    x, start = problem("plain")
    way = test_time.TestTimeProLIP(lr=0.05, views=8)
    alone = torch.cat([way.logits(x[:, i : i + 1], start) for i in range(5)])
    assert_close(way.logits(x, start), alone)
    assert torch.equal(start.head.weight, problem("plain")[1].head.weight)


def test_the_step_lowers_the_entropy():
    x, start = problem("plain", seed=3)
    x[1:] = x[:1] + 0.1 * x[1:]  # views that look alike
    way = test_time.TestTimeProLIP(lr=0.02, views=8, rho=1.0)
    before, after = start.proba(x[0]), way.logits(x, start).softmax(dim=1)
    assert (test_time.entropy(after) < test_time.entropy(before)).all()


def test_entropy_of_a_certain_prediction_has_no_nan():
    v, rows = torch.eye(3)[None], torch.eye(3)
    assert torch.isfinite(test_time.entropy_gradient(v, rows, 1000.0)).all()
    assert test_time.entropy(torch.tensor([[1.0, 0.0]])).item() == 0


def test_tpt_with_one_view_and_no_selection_is_plain_entropy_descent(encoder):
    task, _ = tower_task(encoder)
    start = methods.create("zero_shot").fit(task)
    x = task.x[:, :3]  # one view of three images
    found = test_time.TPT(views=1, rho=1.0, lr=0.01).logits(x, start, encoder)

    towers = encoder.towers()
    prompts = Prompts.build(encoder, towers, task.text.classes, 4, "end")
    words = phrase_embedding(encoder, towers, "a photo of a", "red")
    for i in range(3):
        z = unit_rows(encoder.head(x[0, i]))
        context = torch.nn.Parameter(words.clone())
        optimizer = torch.optim.AdamW([context], lr=0.01, weight_decay=0.01)
        p = (task.scale * z @ prompts.embed(context).T).softmax(dim=0)
        (-(p * p.log()).sum()).backward()
        optimizer.step()
        with torch.no_grad():
            expected = task.scale * z @ prompts.embed(context).T
        assert_close(found[i], expected, atol=1e-4, rtol=1e-4)


def test_tpt_keeps_the_surest_views(encoder):
    """Views that are left out do not matter: noise in their place gives the same."""
    task, _ = tower_task(encoder)
    start = methods.create("zero_shot").fit(task)
    way = test_time.TPT(views=6, rho=0.5, lr=0.01)
    x = task.x[0, torch.randperm(12, generator=torch.Generator().manual_seed(0)).reshape(6, 2)]
    rows = encoder.text(task.text.classes, ["a photo of a {}."]).rows
    logits = task.scale * unit_rows(encoder.head(x)) @ rows.T
    entropy = test_time.entropy(logits.softmax(-1)).T  # [n, V]
    kept = entropy.argsort(dim=1)[:, :3]
    assert_close(way.surest(logits.transpose(0, 1)).sort().values, kept.sort().values)
    before = way.logits(x, start, encoder)
    changed = x.clone()
    for image in range(2):
        unsure = int(entropy[image].argmax())
        if unsure != 0:  # the centre is what is predicted
            changed[unsure, image] = changed[int(entropy[image].argsort()[3]), image]
    assert_close(way.logits(changed, start, encoder), before, atol=1e-4, rtol=1e-4)


def test_classifier_adapts_to_images(offline, photos, tmp_path):
    clf = prolip.FewShotClassifier(lam="1/N", store=tmp_path).fit(photos)
    test = sorted((photos / "test").rglob("*.png"))[:2]
    adapted = clf.test_time(test, views=4)
    assert adapted.logits.shape == (2, 3)
    assert adapted.kept == [0, 1]
    assert torch.equal(adapted.logits.argmax(dim=1), clf.logits(test).argmax(dim=1))
    still = clf.test_time(test, views=4, lr=0.0)  # no step: what the model says itself
    assert_close(still.logits, clf.logits(test), atol=1e-3, rtol=1e-3)


def test_commands_take_options_and_adapt(offline, photos, tmp_path, monkeypatch, capsys):
    from prolip.cli import main

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["prolip", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code or 0, capsys.readouterr()

    out = tmp_path / "model"
    code, said = run(
        "fit", photos, "-o", out, "--method", "coop", "-O", "contexts=2", "-O", "epochs=1", "--json"
    )
    assert code == 0, said.err
    assert json.loads(said.out)["parameters"] == 2 * 384
    picture = next((photos / "test").rglob("*.png"))
    code, said = run("predict", out, picture, "--test-time", "prolip", "--json")
    assert code == 0, said.err
    assert json.loads(said.out)[0]["class"] in ("red", "green", "blue")
    assert run("fit", photos, "-o", out, "--method", "coop", "-O", "contexts")[0] == 2
    assert run("fit", photos, "-o", out, "--method", "maple")[0] == 1


def test_views_are_small_crops(offline):
    views = test_time.view_preprocess(offline.preprocess)
    assert (views.view_area, views.view_interpolation) == (0.08, "bilinear")
    assert views.config() != offline.preprocess.config()  # so that features of other views are not taken


def test_wrong_use_is_told():
    x, start = problem("plain")
    with pytest.raises(InputError, match="features of 64 views"):
        test_time.TestTimeProLIP().logits(x, start)
    with pytest.raises(UsageError, match="unknown test-time adaptation 'tent'"):
        test_time.create("tent")
    with pytest.raises(UsageError, match="rho between 0 and 1"):
        test_time.TPT(rho=0.0)
    adapter = Projected(start.head, start.text, 5.0, adapter=torch.eye(6))
    with pytest.raises(InputError, match="start from zero-shot or ProLIP"):
        test_time.TestTimeProLIP(views=8).logits(x, adapter)
    with pytest.raises(InputError, match="needs the encoder"):
        test_time.TPT(views=8).logits(x, start)
