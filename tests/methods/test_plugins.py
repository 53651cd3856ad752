"""Methods of other packages: the one that CONTRIBUTING.md shows, and what a file may not make us import."""

import json
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from prolip import Head, Task, Text, methods
from prolip.core import SavedModelError, Settings, UsageError
from prolip.core.fitted import KINDS
from prolip.methods import registry
from prolip.methods.base import REGISTERED
from saving import restored

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
PLACE = "nearest_mean:NearestMean"

OWN_KIND = """
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from prolip.core import Fitted, Head, Text

@dataclass(frozen=True, eq=False)
class Constant(Fitted):
    kind: ClassVar[str] = "constant"
    head: Head
    text: Text
    value: float
    def logits(self, x):
        return np.full((len(x), len(self.text)), self.value)
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of modules, and of packages that `install` puts there; forgotten afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    registry.entry_points.cache_clear()
    yield folder
    registry.entry_points.cache_clear()
    forget(folder)


def forget(folder):
    """Be a process that has not imported these modules."""
    names = {module.stem for module in folder.glob("*.py")}
    for table in (REGISTERED, KINDS):
        for name in [name for name, cls in table.items() if cls.__module__ in names]:
            del table[name]
    for name in names:
        sys.modules.pop(name, None)


def install(folder, package, **points):
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}\n" for name, value in points.items()]
    (info / "entry_points.txt").write_text("[prolip.methods]\n" + "".join(lines))
    registry.entry_points.cache_clear()


@pytest.fixture
def example(site):
    """The method of CONTRIBUTING.md, as a module."""
    (block,) = re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text(encoding="utf-8"), re.DOTALL)
    (site / "nearest_mean.py").write_text(block)
    return site


def task():
    rng = np.random.default_rng(0)
    x, text = rng.normal(size=(6, 5)), rng.normal(size=(2, 4))
    return Task(x, [0, 0, 0, 1, 1, 1], Text(text, ("a", "b")), Head(rng.normal(size=(5, 4))), 20.0)


def test_the_example_is_the_mathematics_that_it_states(example):
    problem = task()
    fitted = methods.create(PLACE, share=0.3).fit(problem)
    f = problem.x[0] @ problem.head.weight
    f /= np.linalg.norm(f, axis=1, keepdims=True)
    means = np.stack([f[:3].mean(axis=0), f[3:].mean(axis=0)])
    rows = 0.3 * problem.text.rows + 0.7 * means / np.linalg.norm(means, axis=1, keepdims=True)
    wanted = 20 * f @ (rows / np.linalg.norm(rows, axis=1, keepdims=True)).T
    assert np.allclose(fitted.logits(problem.x[0]), wanted, atol=1e-5)
    assert fitted.settings == Settings(PLACE, {"share": 0.3})
    assert methods.from_settings(fitted.settings) == methods.create(PLACE, share=0.3)
    assert len(methods.create(PLACE).fit_held_out(problem)[1]) == 6


def test_the_commands_of_the_example(example, photos, prolip):
    model = photos.parent / "model"
    code, out, err = prolip("fit", photos, "-o", model, "--method", PLACE, "-O", "share=0.3", "--json")
    assert code == 0, err
    assert json.loads(out)["method"] == PLACE
    forget(example)  # a model of a kind of ours loads without the method
    code, out, err = prolip("eval", model, photos, "--json")
    assert code == 0, err
    assert json.loads(out)["accuracy"] > 0.9
    assert "nearest_mean" not in sys.modules


def test_the_example_is_a_line_of_an_experiment(example, photos, tmp_path, prolip):
    code, out, err = prolip(
        "bench", "run", "validation_free", "--data", photos.parent, "--datasets", "photos",
        "--line", "zero_shot", "--line", PLACE, "--shots", "2", "--seeds", "1-2", "--views", "1",
        "--jobs", "1", "--results", tmp_path / "r.sqlite", "--json",
    )  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["done"] == 3
    code, out, _ = prolip("bench", "table", "validation_free", "--results", tmp_path / "r.sqlite")
    assert code == 0
    assert "nearest_mean" in out


def test_an_installed_method_goes_by_its_name(example, photos, prolip):
    install(example, "nearest_mean", nearest_mean=PLACE)
    assert "nearest_mean" in methods.names()
    assert "nearest_mean" not in sys.modules
    code, out, err = prolip("methods", "--json")
    assert code == 0, err
    (found,) = [method for method in json.loads(out) if method["name"] == "nearest_mean"]
    assert found["summary"].startswith("the nearest mean")
    model = photos.parent / "model"
    code, _, err = prolip("fit", photos, "-o", model, "--method", "nearest_mean")
    assert code == 0, err
    forget(example)
    code, out, err = prolip("curve", model, "--json")  # fits again
    assert code == 0, err
    assert json.loads(out)["now"]["accuracy"] > 0.5


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nowhere_at_all:Method", "cannot be imported"),
        ("math:pi", "no class pi"),
        ("aliases:Alias", "no class Alias"),
        ("prolip.core:Head", "no class Head that extends Method"),
        ("odd-name:Method", "unknown method"),
    ],
)
def test_what_is_no_method_is_refused(site, place, said):
    (site / "aliases.py").write_text("Alias = dict[str, int]")
    with pytest.raises(UsageError, match=said):
        methods.get(place)


def test_a_broken_package_does_not_break_the_others(example, prolip):
    install(example, "broken", broken="broken:Method", odd="no place")
    install(example, "nearest_mean", nearest_mean=PLACE)
    install(example, "thief", prolip="thief:Method")
    (example / "broken.py").write_text("1 / 0")
    assert {"nearest_mean", "broken", "prolip"} <= set(methods.names())
    assert methods.get("prolip").__module__ == "prolip.methods.prolip"
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, out, err = prolip("methods")
    assert code == 0
    assert "nearest_mean" in out
    assert "warning: broken:Method: broken cannot be imported" in err


@pytest.mark.parametrize("name", ["stranger:Method", "prolip+stranger:Method"])
def test_nothing_is_imported_because_settings_name_it(site, name):
    (site / "stranger.py").write_text("raise SystemExit")
    with pytest.raises(SavedModelError):
        methods.from_settings(Settings(name))


def test_a_kind_of_ones_own_loads_where_its_module_is_known(example):
    with (example / "nearest_mean.py").open("a") as module:
        module.write(OWN_KIND)
    import nearest_mean

    head, text = task().head, task().text
    fitted = nearest_mean.Constant(head, text, 3.0, settings=Settings("nearest_mean"))
    assert restored(fitted, {}, head, text).value == 3
    forget(example)
    with pytest.raises(SavedModelError):
        restored(fitted, {}, head, text)
    assert "nearest_mean" not in sys.modules
    install(example, "nearest_mean", nearest_mean=PLACE)
    assert restored(fitted, {}, head, text).logits([[0.0]]).tolist() == [[3, 3]]


@pytest.mark.parametrize("kind", ["unheard", "math:pi", "os:system"])
def test_a_kind_that_is_no_fitted_model_is_refused(kind):
    with pytest.raises(SavedModelError):
        methods.restore(kind, {}, {}, task().head, task().text, Settings("prolip"), {})
