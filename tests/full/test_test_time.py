"""Test-time adaptation: the closed form against autograd, and one image's step against none of another's."""

from pathlib import Path

import numpy as np
import pytest
import torch

import prolip
from closeness import assert_close
from prolip import methods
from prolip.core import UsageError
from prolip.core.arrays import to_torch, unit_rows
from prolip.encoders import load
from prolip.features import FeatureStore
from prolip.research.catalogue import find_experiment
from prolip.research.protocols.protocols import PROTOCOLS
from prolip.research.running.encoding import read_encoding
from prolip.research.running.plan import make_plan
from prolip.research.running.run import prepare_jobs
from prolip.research.running.source import Images
from prolip.research.towers import test_time
from prolip.research.towers.prompt_tuning import Layout, phrase_embedding
from prolip.research.towers.test_time import adapt_images
from test_projection_step import problem
from tiny_models import TOWERS, tower_task, write_folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("towers") / "vit", TOWERS["vit"])
    return load(f"open_clip:local-dir:{folder}", "cpu")


def by_autograd(x, start, way):
    """Each image on its own, with torch's AdamW."""
    scores = []
    rows = to_torch(start.text.rows)
    for views in x.swapaxes(0, 1):  # [V, width]
        weight = torch.nn.Parameter(to_torch(start.head.weight))

        def logits(views, weight=weight):
            inputs, fixed = start.head.split(views)
            v = to_torch(inputs) @ weight + (0 if fixed is None else to_torch(fixed))
            return start.scale * torch.nn.functional.normalize(v, dim=1) @ rows.T

        p = logits(views).softmax(dim=1)
        surest = (-(p * p.log()).sum(dim=1)).argsort()[: max(1, int(way.views * way.rho))].tolist()
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


@pytest.mark.parametrize("learned", [False, True])
def test_tpt_with_one_view_and_no_selection_is_plain_entropy_descent(encoder, learned):
    """From a phrase, or from the words that CoOp learned."""
    task, _ = tower_task(encoder)
    start = methods.create("coop", contexts=3, epochs=2) if learned else methods.create("zero_shot")
    start = start.fit(task)
    x = task.x[:, :3]  # one view of three images
    found = test_time.TPT(views=1, rho=1.0, lr=0.01).logits(x, start, encoder)

    towers = encoder.towers()
    words = phrase_embedding(encoder, towers, "a photo of a", "red")
    words = to_torch(start.context) if learned else words
    prompts = Layout(len(words)).prompts(encoder, task.text.classes)
    for i in range(3):
        z = to_torch(unit_rows(encoder.head(x[0, i])))
        context = torch.nn.Parameter(words.clone())
        optimizer = torch.optim.AdamW([context], lr=0.01, weight_decay=0.01)
        p = (task.scale * z @ prompts.embed(context).T).softmax(dim=0)
        (-(p * p.log()).sum()).backward()
        optimizer.step()
        with torch.no_grad():
            expected = task.scale * z @ prompts.embed(context).T
        assert_close(found[i], expected, atol=1e-4, rtol=1e-4)


def test_classifier_adapts_to_images(offline, photos, tmp_path):
    clf = prolip.FewShotClassifier(method="prolip", options={"lam": "1/N"}, store=tmp_path).fit(photos)
    test = sorted((photos / "test").rglob("*.png"))[:2]
    way = test_time.TestTimeProLIP(views=4)
    adapted = adapt_images(clf.model_.encoder, clf.fitted_, test, way)
    assert adapted.shape == (2, 3)
    assert np.isfinite(adapted).all()
    way = test_time.TestTimeProLIP(views=4, lr=0.0)
    still = adapt_images(clf.model_.encoder, clf.fitted_, test, way)  # no step: what the model says itself
    assert_close(still, clf.fitted_.logits(clf.features(test).features[0]), atol=1e-3, rtol=1e-3)


def test_a_step_on_the_projection_takes_less_time_than_one_on_the_prompt(
    encoder, photos, tmp_path, monkeypatch
):
    """The ratio of the experiment `timing_test_time`, of two images."""
    monkeypatch.setattr("prolip.research.protocols.protocols.TIMED_IMAGES", 2)
    source = Images(photos.parent, "cpu", FeatureStore(tmp_path / "features"))
    chosen = find_experiment("timing_test_time")
    plan = make_plan(chosen, source, datasets=(photos.name,), models=(encoder.name,))
    seconds = {}
    for job in prepare_jobs(plan, source.open(plan)):
        dataset = read_encoding(Path(job.files[0]), "cpu").dataset
        seconds[job.run.entry] = PROTOCOLS[job.run.protocol](dataset, job.run)["seconds"]
    assert 0 < seconds["test_time"] < seconds["tpt"]


def test_a_baseline_that_trains_a_tower_is_for_experiments(offline, photos, tmp_path):
    with pytest.raises(UsageError):
        prolip.FewShotClassifier(offline, "coop", store=tmp_path).fit(photos)
