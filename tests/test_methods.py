"""Each method against its own definition, computed another way."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from prolip import Head, Task, Text, methods
from prolip.core import InputError, UsageError
from prolip.methods.base import Shape

ON_FEATURES = [
    "zero_shot",
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
    "ensemble",
    "auto",
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
    "rla+clip_adapter": {"alpha": 0.5, "epochs": 20},
    "lp_plus_plus": {"epochs": 20},
    "prolip+task_res": {"lam": "1/N"},
    "ensemble": {"members": "zero_shot,gda"},
    "auto": {"candidates": "zero_shot,gda"},
}


def problem(shots=4, classes=3, noise=0.4, seed=0, views=1, width=8, dim=6, prompts=2):
    """Images around a direction of their class, and texts that point roughly the same way."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=rng)

    centres, weight = normal(classes, width), normal(width, dim) / math.sqrt(width)
    x = centres.repeat_interleave(shots, 0) + noise * normal(views, shots * classes, width)
    y = torch.arange(classes).repeat_interleave(shots)
    features, projection = normal(prompts, classes, 5), Head(normal(5, dim), normal(dim))
    features[:, :, 0] += 3 * torch.arange(classes)
    text = Text.from_features(features, projection, [f"class {k}" for k in range(classes)])
    return Task(x, y, text, Head(weight, normal(dim) / 10), scale=20.0)


def create(name, **options):
    return methods.create(name, **QUICK.get(name, {}) | options)


@cache
def fitted_once(name):
    return create(name).fit(problem())


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def embed(task, x=None):
    x = task.x[0] if x is None else x
    return unit(x @ task.head.weight + task.head.bias)


def zero_shot(task, x=None):
    return task.scale * embed(task, x) @ task.text.rows.T


def minimise(loss, *shapes):
    """Another optimizer than the package's, in double precision."""
    parameters = [torch.zeros(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    optimizer = torch.optim.LBFGS(
        parameters, max_iter=500, tolerance_grad=1e-9, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        value = loss(*parameters)
        value.backward()
        return value

    optimizer.step(closure)
    return [p.detach() for p in parameters]


# What holds for all of them


@pytest.mark.parametrize("name", ON_FEATURES)
def test_a_fit_gives_logits_and_tells_about_itself(name):
    task = problem()
    method, fitted = create(name), fitted_once(name)
    assert fitted.logits(task.x[0]).shape == (12, 3)
    assert fitted.info["method"] == name
    assert fitted.info["parameters"] == method.parameters(task) or name == "auto"
    assert fitted.info["seconds"] >= 0


@pytest.mark.parametrize("name", sorted(set(ON_FEATURES) - {"zero_shot", "tip_adapter", "tip_adapter_f"}))
def test_with_its_defaults_it_learns_what_zero_shot_gets_wrong(name):
    task, fresh = problem(shots=5, noise=0.2, seed=3), problem(shots=5, noise=0.2, seed=3, views=2).x[1]
    fitted = methods.create(name, **{"lr": 0.01, "reduction": 1} if "clip_adapter" in name else {}).fit(task)
    zero_shot = methods.create("zero_shot").fit(task)
    assert (zero_shot.predict(fresh) == task.y).float().mean() < 0.7
    assert (fitted.predict(fresh) == task.y).float().mean() >= 0.9


@pytest.mark.parametrize("name", ON_FEATURES)
def test_permuting_the_classes_permutes_the_logits(name):
    task, order = problem(), torch.tensor([2, 0, 1])
    text = task.text
    shuffled = Task(
        task.x,
        torch.argsort(order)[task.y],
        Text(text.rows[order], [text.classes[k] for k in order], text.features[:, order], text.projection),
        task.head,
        task.scale,
    )
    if name in ("ensemble", "auto"):
        pytest.skip("a search over folds, which are dealt out class by class")
    a = fitted_once(name).logits(task.x[0])
    b = create(name).fit(shuffled).logits(task.x[0])
    assert torch.allclose(a[:, order], b, atol=0.02 * float(a.abs().max()))


@pytest.mark.parametrize("name", ON_FEATURES)
def test_the_same_seed_gives_the_same_model(name):
    again = create(name).fit(problem())
    assert torch.equal(again.logits(problem().x[0]), fitted_once(name).logits(problem().x[0]))


@pytest.mark.parametrize("name", ON_FEATURES)
def test_several_views_are_taken(name):
    fitted = create(name).fit(problem(views=3))
    assert torch.isfinite(fitted.logits(problem().x[0])).all()


@pytest.mark.parametrize("name", ON_FEATURES)
def test_one_image_a_class_is_enough(name):
    fitted = create(name).fit(problem(shots=1))
    assert torch.isfinite(fitted.logits(problem().x[0])).all()


@pytest.mark.parametrize("name", ON_FEATURES)
def test_saved_tensors_give_the_same_logits(name):
    task, fitted = problem(), fitted_once(name)
    scale = fitted.info.get("scale", task.scale)
    text = Text(task.text.rows, task.text.classes)  # what a saved folder keeps of the texts
    back = methods.restore(fitted.kind, fitted.tensors(), task.head, text, scale, fitted.info)
    assert torch.allclose(back.logits(task.x[0]), fitted.logits(task.x[0]), atol=1e-4)


@pytest.mark.parametrize("name", ON_FEATURES)
def test_a_validation_set_is_taken(name):
    fitted = create(name).fit(problem(), validation=problem(seed=0, views=2))
    assert torch.isfinite(fitted.logits(problem().x[0])).all()


@pytest.mark.parametrize("name", ON_FEATURES)
def test_features_of_the_wrong_width_are_refused(name):
    fitted = fitted_once(name)
    with pytest.raises(InputError, match=r"features have 3 columns, the head expects 8"):
        fitted.logits(torch.randn(2, 3))


@pytest.mark.parametrize("name", ON_FEATURES)
def test_only_open_class_methods_answer_for_other_classes(name):
    fitted = fitted_once(name)
    other = problem(classes=4, seed=9).text
    if create(name).open_class:
        assert fitted.with_text(other).logits(problem().x[0]).shape == (12, 4)
    elif name != "auto":  # what auto chose may be open-class
        with pytest.raises(InputError, match="knows only the classes"):
            fitted.with_text(other)


# One by one


def test_linear_probe_is_scikit_learns_logistic_regression():
    task = problem(noise=1.0)
    theirs = LogisticRegression(C=3.0, tol=1e-8, max_iter=10_000).fit(embed(task).double(), task.y)
    ours = create("linear_probe", C=3.0).fit(task)
    assert np.allclose(ours.weight, theirs.coef_, atol=0.02)
    assert np.allclose(ours.proba(task.x[0]), theirs.predict_proba(embed(task).double()), atol=5e-3)


def test_linear_probe_on_the_features_before_the_projection():
    task = problem()
    theirs = LogisticRegression(C=3.0, tol=1e-8, max_iter=10_000).fit(unit(task.x[0]).double(), task.y)
    ours = create("linear_probe", C=3.0, features="pre").fit(task)
    assert np.allclose(ours.weight, theirs.coef_, atol=0.02)
    assert ours.info["parameters"] == 3 * 8


def test_linear_probe_takes_c_from_the_validation_set():
    task, validation = problem(noise=2.0), problem(noise=2.0, seed=1)
    probe = methods.create("linear_probe").fit(task, validation=validation)
    accuracy = [
        (create("linear_probe", C=c).fit(task).predict(validation.x[0]) == validation.y).float().mean()
        for c in (1e-4, 1e-2, 1.0, 1e2, 1e4)
    ]
    assert (probe.predict(validation.x[0]) == validation.y).float().mean() >= max(accuracy) - 1e-6
    assert probe.info["search"]["on"] == "validation"


def test_lp_plus_plus_starts_at_class_sums_and_scaled_texts():
    task = problem()
    f, t = embed(task), task.text.rows
    sums = torch.stack([f[task.y == k].sum(0) for k in range(3)])
    alpha = 2.5 * task.scale * (f * t[task.y]).sum(1).mean()
    assert torch.allclose(create("lp_plus_plus", epochs=0).fit(task).weight, sums + alpha * t, atol=1e-4)


def test_lp_plus_plus_takes_the_step_of_its_curvature():
    task = problem()
    f, t, y = embed(task), task.text.rows, task.y
    w = torch.stack([f[y == k].sum(0) for k in range(3)]).requires_grad_()
    alpha = torch.full((3,), 2.5 * task.scale * float((f * t[y]).sum(1).mean()), requires_grad=True)
    torch.nn.functional.cross_entropy(f @ w.T + alpha * (f @ t.T), y).backward()
    w = w - 4 * 12 / torch.linalg.eigvalsh(f.T @ f)[-1] * w.grad
    alpha = alpha - 12 / (4 * (f @ t.T).square().sum(0).max()) * alpha.grad
    ours = create("lp_plus_plus", epochs=1).fit(task)
    assert torch.allclose(ours.weight, w + alpha[:, None] * t, atol=1e-3)


def test_lp_plus_plus_is_descent_with_momentum():
    task = problem()
    f, t, y = embed(task), task.text.rows, task.y
    w = torch.stack([f[y == k].sum(0) for k in range(3)]).requires_grad_()
    alpha = torch.full((3,), 2.5 * task.scale * float((f * t[y]).sum(1).mean()), requires_grad=True)
    weights = torch.optim.SGD([w], lr=float(4 * 12 / torch.linalg.eigvalsh(f.T @ f)[-1]), momentum=0.9)
    blend = torch.optim.SGD([alpha], lr=float(12 / (4 * (f @ t.T).square().sum(0).max())))
    for epoch in range(25):
        weights.zero_grad()
        blend.zero_grad()
        torch.nn.functional.cross_entropy(f @ w.T + alpha * (f @ t.T), y).backward()
        weights.step()
        if epoch % 10 == 0:
            blend.step()
    ours = create("lp_plus_plus", epochs=25).fit(task)
    assert torch.allclose(ours.weight, (w + alpha[:, None] * t).detach(), rtol=1e-3, atol=1e-2)


def test_clap_is_the_minimum_of_its_objective():
    task = problem()
    f, t, y, s = embed(task).double(), task.text.rows.double(), task.y, task.scale
    p = zero_shot(task).softmax(1)[torch.arange(12), y].double()
    multiplier = torch.stack([p[y == k].mean() for k in range(3)])

    def loss(step):
        rows = torch.nn.functional.normalize(t + step, dim=1)
        pull = (multiplier * (s / 10) ** 2 * step.square().sum(1)).mean()
        return torch.nn.functional.cross_entropy(s * f @ rows.T, y) + pull

    (step,) = minimise(loss, t.shape)
    wanted = s * torch.nn.functional.normalize(t + step, dim=1)
    assert torch.allclose(create("clap").fit(task).weight.double(), wanted, atol=0.05)


def test_claps_adaptive_multipliers_call_rows_back():
    task = problem(noise=1.0)
    distance = {
        kind: (create("clap", multipliers=kind).fit(task).weight / task.scale - task.text.rows).norm()
        for kind in ("fixed", "adaptive")
    }
    assert distance["adaptive"] < distance["fixed"]


def test_cross_modal_is_the_minimum_over_images_and_texts():
    task, lam = problem(), 0.3
    f, t, y, s = embed(task).double(), task.text.rows.double(), task.y, task.scale
    cross_entropy = torch.nn.functional.cross_entropy

    def loss(step):
        images = cross_entropy(s * f @ (t + step).T, y)
        texts = cross_entropy(s * t @ (t + step).T, torch.arange(3))
        return (images + texts) / 2 + lam * (s / 100) ** 2 * step.square().sum()

    (step,) = minimise(loss, t.shape)
    ours = create("cross_modal", lam=lam).fit(task).weight.double()
    assert torch.allclose(ours, s * (t + step), atol=0.1)


@pytest.mark.parametrize("normalise", [True, False])
def test_task_res_is_the_minimum_of_its_objective(normalise):
    task, lam = problem(), 0.3
    f, t, y, s = embed(task).double(), task.text.rows.double(), task.y, task.scale

    def loss(r):
        rows = t + 0.5 * r
        rows = torch.nn.functional.normalize(rows, dim=1) if normalise else rows
        pull = lam * (s / 100) ** 2 * r.square().sum()
        return torch.nn.functional.cross_entropy(s * f @ rows.T, y) + pull

    (r,) = minimise(loss, t.shape)
    rows = t + 0.5 * r
    wanted = s * (torch.nn.functional.normalize(rows, dim=1) if normalise else rows)
    ours = create("task_res", lam=lam, normalise=normalise).fit(task)
    assert torch.allclose(ours.weight.double(), wanted, atol=0.1)


def test_task_res_has_its_authors_recipe():
    task = problem()
    fitted = create("task_res", solver="adam").fit(task)
    assert fitted.info["solver"] == "adam"
    assert fitted.info["objective"] < fitted.info["start_objective"]


def test_prolip_text_is_the_minimum_of_its_objective():
    task, lam = problem(), 0.05
    f, y, s = embed(task).double(), task.y, task.scale
    features, head = task.text.features.double(), task.text.projection

    def rows(step):
        each = torch.nn.functional.normalize(features @ (head.weight.double() + step) + head.bias, dim=2)
        return torch.nn.functional.normalize(each.mean(0), dim=1)

    def loss(step):
        return torch.nn.functional.cross_entropy(s * f @ rows(step).T, y) + lam * step.square().sum()

    (step,) = minimise(loss, head.weight.shape)
    fitted = create("prolip_text", lam=lam).fit(task)
    assert torch.allclose(fitted.logits(task.x[0]).double(), s * f @ rows(step).T, atol=0.1)


def test_prolip_text_says_what_a_task_lacks():
    task = problem()
    bare = Task(task.x, task.y, task.text.rows, task.head)
    with pytest.raises(InputError, match="text features from before the projection"):
        create("prolip_text", lam=1.0).fit(bare)


def test_prolip_text_asks_for_texts_with_features():
    fitted = create("prolip_text", lam=1.0).fit(problem())
    with pytest.raises(InputError, match="a Text with features"):
        fitted.with_text(torch.randn(4, 6))


def test_clip_adapter_mixes_a_network_with_the_embedding():
    task = problem()
    fitted = create("clip_adapter", alpha=0.3, epochs=5).fit(task)
    v = task.x[0] @ task.head.weight + task.head.bias
    mixed = 0.3 * v + 0.7 * torch.relu(torch.relu(v @ fitted.down) @ fitted.up)
    assert torch.allclose(fitted.logits(task.x[0]), 20 * unit(mixed) @ task.text.rows.T, atol=1e-4)
    assert fitted.down.shape == (6, 1)


def test_tip_adapter_by_hand():
    task = problem(views=2)
    keys = unit((embed(task, task.x[0]) + embed(task, task.x[1])) / 2)
    values = torch.nn.functional.one_hot(task.y).float()
    f = embed(task, problem(seed=7).x[0])
    wanted = 20 * f @ task.text.rows.T + 1.17 * torch.exp(-5.5 * (1 - f @ keys.T)) @ values
    assert torch.allclose(
        create("tip_adapter", beta=5.5).fit(task).logits(problem(seed=7).x[0]), wanted, atol=1e-4
    )


def test_tip_adapter_f_moves_keys_downhill():
    task = problem()
    fitted = create("tip_adapter_f").fit(task)
    assert fitted.info["objective"] < fitted.info["start_objective"]
    assert not torch.equal(fitted.keys, embed(task))
    assert create("tip_adapter_f", epochs=0).fit(task).keys.allclose(embed(task), atol=1e-6)


def test_tip_adapter_f_star_searches_its_weights():
    found = create("tip_adapter_f_star", epochs=2).fit(problem(shots=5)).info
    assert found["search"]["on"] == "support"
    assert found["chosen"]["alpha"] > 1


def test_gda_by_hand():
    task = problem()
    f, y = embed(task).double(), task.y
    means = torch.stack([f[y == k].mean(0) for k in range(3)])
    centred = f - means[y]
    spread = centred.T.cov()  # rows are variables
    precision = 6 * torch.linalg.pinv(11 * spread + spread.trace() * torch.eye(6))
    w = means @ precision
    b = math.log(1 / 3) - 0.5 * (means * w).sum(1)
    fitted = create("gda", alpha=0.7).fit(task)
    wanted = zero_shot(task).double() + 0.7 * (f @ w.T + b)
    assert torch.allclose(fitted.logits(task.x[0]).double(), wanted, rtol=1e-3, atol=1e-2)


# Zero training, or an infinite pull, is zero-shot


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("prolip", {"lam": 1e7, "scale": "fixed"}),
        ("rla", {"lam": 1e7, "scale": "fixed"}),
        ("prolip_text", {"lam": 1e7}),
        ("task_res", {"lam": 1e7}),
        ("cross_modal", {"lam": 1e7}),
        ("clip_adapter", {"alpha": 1.0}),
        ("tip_adapter", {"alpha": 0.0}),
        ("tip_adapter_f", {"alpha": 0.0}),
        ("gda", {"alpha": 0.0}),
        ("prolip+task_res", {"lam": 1e7}),
        ("prolip+rla", {"lam": 1e7}),
    ],
)
def test_zero_shot_comes_back(name, options):
    task = problem()
    assert torch.allclose(create(name, **options).fit(task).logits(task.x[0]), zero_shot(task), atol=2e-3)


# Names, options, sizes


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("prolib", {}, "did you mean 'prolip'"),
        ("gda", {"beta": 1}, "no option 'beta': it takes alpha, seed"),
        ("zero_shot", {"lam": 1}, "it takes none"),
        ("linear_probe", {"C": -1}, "C must be"),
        ("linear_probe", {"features": "post"}, "unknown features 'post'"),
        ("task_res", {"lam": "1/n"}, "lam must be"),
        ("task_res", {"solver": "sgd"}, "unknown solver 'sgd'"),
        ("prolip_text", {"solver": "sgd"}, "unknown solver 'sgd'"),
        ("clap", {"multipliers": "none"}, "unknown multipliers"),
        ("clap", {"rounds": 0}, "rounds must be"),
        ("clip_adapter", {"alpha": 2}, "alpha must be"),
        ("tip_adapter", {"beta": -1}, "beta must be"),
        ("gda", {"alpha": "best"}, "alpha must be"),
        ("lp_plus_plus", {"epochs": -1}, "epochs must be"),
        ("ensemble", {"weights": [1.0]}, "1 weights for 3 members"),
        ("ensemble", {"weights": "some"}, "weights must be"),
        ("ensemble", {"members": ""}, "at least one member"),
        ("prolip+gda", {}, "gda cannot be a term of a sum"),
        ("prolip+prolip", {}, "two or more different methods"),
        ("prolip+nothing", {}, "unknown method 'nothing'"),
        ("prolip+rla", {"solver": "sgd"}, "unknown solver 'sgd'"),
    ],
)
def test_wrong_names_and_options_are_explained(name, options, message):
    with pytest.raises(UsageError, match=message):
        methods.create(name, **options)


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


def test_gda_believes_two_images_more_than_texts_that_say_nothing():
    generator = torch.Generator().manual_seed(0)
    centres, text = torch.randn(2, 12, 64, generator=generator)
    centres = centres + 2.0
    x = centres.repeat(2, 1) + 1.5 * torch.randn(24, 64, generator=generator)
    task = Task(x, torch.arange(12).repeat(2), text, scale=10.0)
    fitted = methods.create("gda").fit(task)
    test = centres.repeat(20, 1) + 1.5 * torch.randn(240, 64, generator=generator)
    right = (fitted.predict(test) == torch.arange(12).repeat(20)).double().mean()
    assert fitted.info["chosen"]["alpha"] >= 1
    assert right > 0.87
