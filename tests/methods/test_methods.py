"""Each method against its own definition, computed another way."""

import math
from functools import cache

import numpy as np
import onnxruntime
import pytest
from scipy import optimize
from scipy.special import log_softmax

from closeness import assert_close
from prolip import Head, Task, Text, methods
from prolip.core import InputError, SavedModelError, UsageError
from prolip.core.errors import UnknownNameError
from prolip.io.onnx_graph import Graph
from prolip.methods.base import OptionError, Shape
from saving import restored

ON_FEATURES = [
    "zero_shot",
    "anchored",
    "prolip",
    "rla",
    "prolip_text",
    "linear_probe",
    "lp_plus_plus",
    "clap",
    "cross_modal",
    "task_res",
    "clip_adapter",
    "tip_adapter",
    "tip_adapter_f",
    "tip_adapter_f_star",
    "gda",
    "prolip+rla",
    "prolip+tip_adapter_f",
    "prolip+task_res",
    "rla+clip_adapter",
]
# Without a search, where that is not what is tested.
QUICK = {
    "linear_probe": {"C": 3.0},
    "prolip": {"lam": "1/N"},
    "rla": {"lam": "1/N"},
    "prolip_text": {"lam": "1/N"},
    "task_res": {"lam": "1/N"},
    "cross_modal": {"lam": "1/N"},
    "gda": {"alpha": 1.0},
    "clip_adapter": {"alpha": 0.5, "epochs": 20},
    "rla+clip_adapter": {"terms": {"clip_adapter": {"alpha": 0.5}}, "epochs": 20},
    "lp_plus_plus": {"epochs": 20},
    "prolip+task_res": {"terms": {"task_res": {"lam": "1/N"}}},
}


def problem(shots=4, classes=3, noise=0.4, seed=20, views=1, width=8, dim=6, prompts=2, dtype=np.float32):
    """Images around a direction of their class, and texts that get half of them right (with this seed)."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.normal(size=shape).astype(dtype)

    centres, weight = normal(classes, width), normal(width, dim) / math.sqrt(width)
    y = np.repeat(np.arange(classes), shots)
    x = centres[y] + noise * normal(views, len(y), width)
    features, projection = normal(prompts, classes, 5), Head(normal(5, dim), normal(dim))
    features[:, :, 0] += 3 * np.arange(classes)
    text = Text.from_features(features, projection, [f"class {k}" for k in range(classes)])
    return Task(x, y, text, Head(weight, normal(dim) / 10), scale=20.0)


def create(name, **options):
    return methods.create(name, **QUICK.get(name, {}) | options)


@cache
def fitted_once(name):
    return create(name).fit(problem())


def close(found, expected, atol, rtol=0.0):
    return np.allclose(found, expected, atol=atol, rtol=rtol)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def embed(task, x=None):
    x = task.x[0] if x is None else x
    return unit(x @ task.head.weight + task.head.bias)


def zero_shot(task, x=None):
    return task.scale * embed(task, x) @ task.text.rows.T


def cross_entropy(logits, y):
    return -log_softmax(logits, axis=1)[np.arange(len(y)), y].mean()


def minimise(loss, shape):
    """Another optimizer than the package's, which finds the gradient by differences."""
    found = optimize.minimize(
        lambda flat: loss(flat.reshape(shape)), np.zeros(math.prod(shape)), method="BFGS"
    )
    return found.x.reshape(shape)


def parts_of(task):
    """Unit embeddings, text rows, labels and scale in double precision."""
    return embed(task).astype(float), task.text.rows.astype(float), task.y, task.scale


# What holds for all of them


@pytest.mark.parametrize("name", ON_FEATURES)
def test_a_fit_gives_logits_and_tells_about_itself(name):
    task = problem()
    method, fitted = create(name), fitted_once(name)
    assert fitted.logits(task.x[0]).shape == (12, 3)
    assert fitted.settings.method == name
    assert fitted.report["parameters"] == method.parameters(task)
    assert fitted.report["seconds"] > 0


@pytest.mark.parametrize("name", sorted(set(ON_FEATURES) - {"zero_shot", "tip_adapter", "tip_adapter_f"}))
def test_with_its_defaults_it_learns_what_zero_shot_gets_wrong(name):
    task, fresh = problem(shots=5, noise=0.2, seed=3), problem(shots=5, noise=0.2, seed=3, views=2).x[1]
    wide = {"reduction": 1}
    options = {
        "clip_adapter": {"lr": 0.01, **wide},
        "rla+clip_adapter": {"lr": 0.01, "terms": {"clip_adapter": wide}},
    }
    fitted = methods.create(name, **options.get(name, {})).fit(task)
    zero_shot = methods.create("zero_shot").fit(task)
    assert (zero_shot.predict(fresh) == task.y).mean() < 0.7
    assert (fitted.predict(fresh) == task.y).mean() >= 0.9


@pytest.mark.parametrize("name", ON_FEATURES)
def test_permuting_the_classes_permutes_the_logits(name):
    task, order = problem(), np.array([2, 0, 1])
    text = task.text
    shuffled = Task(
        task.x,
        np.argsort(order)[task.y],
        Text(text.rows[order], [text.classes[k] for k in order], text.features[:, order], text.projection),
        task.head,
        task.scale,
    )
    a = fitted_once(name).logits(task.x[0])
    b = create(name).fit(shuffled).logits(task.x[0])
    assert close(a[:, order], b, atol=0.02 * np.abs(a).max())


@pytest.mark.parametrize("name", ON_FEATURES)
def test_the_same_seed_gives_the_same_model(name):
    again = create(name).fit(problem())
    assert np.array_equal(again.logits(problem().x[0]), fitted_once(name).logits(problem().x[0]))


@pytest.mark.parametrize("name", ON_FEATURES)
@pytest.mark.parametrize("support", [{"views": 3}, {"shots": 1}])
def test_several_views_or_one_image_a_class_are_fitted(name, support):
    fitted = create(name).fit(problem(**support))
    assert np.isfinite(fitted.logits(problem().x[0])).all()


@pytest.mark.parametrize("name", ON_FEATURES)
def test_saved_tensors_give_the_same_logits(name):
    task, fitted = problem(), fitted_once(name)
    text = Text(task.text.rows, task.text.classes)  # what a saved folder keeps of the texts
    back = restored(fitted, fitted.tensors(), task.head, text)
    assert close(back.logits(task.x[0]), fitted.logits(task.x[0]), atol=1e-4)
    assert back.settings == fitted.settings
    assert back.report == fitted.report


@pytest.mark.parametrize("name", ON_FEATURES)
def test_a_damaged_file_is_refused_with_a_sentence(name):
    task, fitted = problem(), fitted_once(name)
    for key in fitted.config():
        lacking = {name: value for name, value in fitted.config().items() if name != key}
        for damaged in (lacking, {**lacking, key: {}}):
            with pytest.raises(SavedModelError):
                restored(fitted, fitted.tensors(), task.head, task.text, damaged)


NOTHING = {
    "zero_shot",
    "anchored",
    "clap",
    "tip_adapter",
    "prolip",
    "rla",
    "prolip+rla",
    "prolip+tip_adapter_f",
}


@pytest.mark.filterwarnings("ignore:lam = 0")
@pytest.mark.parametrize("name", ON_FEATURES)
def test_a_validation_set_is_used(name):
    """Not every set has the same answer: on some the labels are right, on others what zero-shot says."""
    task, sets = problem(), [problem(shots=12, noise=noise) for noise in (0.4, 0.8)]
    sets += [Task(v.x, zero_shot(v).argmax(axis=1), v.text, v.head, v.scale) for v in sets]
    method = methods.create(name, **({"lr": 0.1} if name == "tip_adapter_f" else {}))
    if name in NOTHING:
        with pytest.raises(UsageError):
            method.fit(task, validation=sets[0])
        return
    assert method.uses_validation()
    assert len({method.fit(task, validation=each).logits(task.x[0]).tobytes() for each in sets}) > 1


@pytest.mark.parametrize("name", ON_FEATURES)
def test_features_of_the_wrong_width_are_refused(name):
    fitted = fitted_once(name)
    with pytest.raises(InputError):
        fitted.logits(np.ones((2, 3)))


@pytest.mark.parametrize("name", ON_FEATURES)
def test_only_open_class_methods_answer_for_other_classes(name):
    fitted = fitted_once(name)
    other = problem(classes=4, seed=9).text
    if create(name).open_class:
        assert fitted.with_text(other).logits(problem().x[0]).shape == (12, 4)
    else:
        with pytest.raises(InputError):
            fitted.with_text(other)


@pytest.mark.parametrize(
    "name",
    ["zero_shot", "anchored", "prolip", "rla", "prolip_text", "gda", "linear_probe", "linear_probe:pre"],
)
@pytest.mark.parametrize("residual", [False, True])
def test_an_onnx_graph_gives_the_same_logits(name, residual):
    task = problem()
    if residual:  # SigLIP's head: each image brings an offset of its own
        offsets = np.random.default_rng(1).normal(size=(1, 12, 6)).astype(np.float32)
        head = Head(task.head.weight, task.head.bias, residual=True)
        task = Task(np.concatenate([task.x, offsets], axis=2), task.y, task.text, head, task.scale)
    name, _, space = name.partition(":")
    fitted = create(name, **{"features": space} if space else {}).fit(task)
    graph = Graph()
    graph.node("Identity", fitted.to_onnx(graph, "x"), output="logits")
    width = task.x.shape[2]
    model = graph.to_bytes({"x": ("float32", ("n", width))}, {"logits": ("float32", ("n", 3))})
    (logits,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(
        None, {"x": task.x[0]}
    )
    assert close(logits, fitted.logits(task.x[0]), atol=1e-3)


# One by one


# Zero training, or an infinite pull, is zero-shot


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("prolip", {"lam": 1e7}),
        ("rla", {"lam": 1e7}),
        ("prolip_text", {"lam": 1e7}),
        ("task_res", {"lam": 1e7}),
        ("cross_modal", {"lam": 1e7}),
        ("clip_adapter", {"alpha": 1.0}),
        ("tip_adapter", {"alpha": 0.0}),
        ("tip_adapter_f", {"alpha": 0.0}),
        ("gda", {"alpha": 0.0}),
        ("prolip+task_res", {"terms": {"prolip": {"lam": 1e7}, "task_res": {"lam": 1e7}}}),
        ("prolip+rla", {"terms": {"prolip": {"lam": 1e7}, "rla": {"lam": 1e7}}}),
    ],
)
def test_zero_shot_comes_back(name, options):
    task = problem()
    assert close(create(name, **options).fit(task).logits(task.x[0]), zero_shot(task), atol=2e-3)


# Names, options, sizes


@pytest.mark.parametrize(
    ("name", "options", "error", "attributes"),
    [
        ("prolib", {}, UnknownNameError, {"kind": "method", "name": "prolib"}),
        ("gda", {"beta": 1}, UsageError, {}),
        ("zero_shot", {"lam": 1}, UsageError, {}),
        ("linear_probe", {"C": -1}, OptionError, {"option": "C"}),
        ("task_res", {"lam": "1/n"}, UsageError, {}),
        ("task_res", {"solver": "newton"}, OptionError, {"option": "solver"}),
        ("clip_adapter", {"alpha": 2}, OptionError, {"option": "alpha"}),
        ("lp_plus_plus", {"epochs": "many"}, OptionError, {"option": "epochs"}),
        ("prolip+gda", {}, UsageError, {}),
        ("prolip+prolip", {}, UsageError, {}),
        ("prolip+nothing", {}, UnknownNameError, {"kind": "method", "name": "nothing"}),
    ],
)
def test_wrong_names_and_options_are_refused(name, options, error, attributes):
    with pytest.raises(error) as caught:
        methods.create(name, **options)
    assert {key: getattr(caught.value, key) for key in attributes} == attributes


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("zero_shot", 0),
        ("prolip", 2048 * 1024),
        ("rla", 1024 * 1024),
        ("prolip_text", 512 * 1024),
        ("linear_probe", 100 * 1024),
        ("lp_plus_plus", 100 * 1025),
        ("clip_adapter", 2 * 256 * 1024),
        ("tip_adapter_f", 1600 * 1024),
        ("prolip+task_res", 2048 * 1024 + 100 * 1024),
    ],
)
def test_trained_numbers_are_the_papers(name, count):
    shape = Shape(features=2048, dim=1024, classes=100, images=1600, text_features=512)
    assert methods.create(name).count(shape) == count


@pytest.mark.parametrize(("shots", "views", "width"), [(4, 1, 24), (3, 2, 24), (9, 1, 12)])
@pytest.mark.parametrize("method", ["prolip", "rla"])
def test_fits_on_parts_are_those_of_the_parts_alone(method, shots, views, width):
    """They share a decomposition and start from each other; more rows than features, and fewer."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), shots)
    means = rng.normal(size=(5, width))
    x = means[y] + 0.8 * rng.normal(size=(views, len(y), width))
    weight = rng.normal(size=(width, 10))
    text = means @ weight + rng.normal(size=(5, 10))
    task = Task(x, y, text, Head(weight), 10.0)
    parts = [np.flatnonzero(np.arange(len(y)) % shots != k) for k in range(3)]
    fitted = methods.create(method, lam=0.1)
    for part, together in zip(parts, fitted.fit_parts(task, parts), strict=True):
        alone = fitted.fit(task.subset(part))
        assert_close(together.logits(x[0]), alone.logits(x[0]), atol=1e-3, rtol=1e-3)
