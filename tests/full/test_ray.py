"""The same results and the same features on a local Ray cluster, though a worker is killed in the middle."""

import tempfile
import warnings

import numpy as np
import pytest

from prolip.features import FeatureStore, extract
from prolip.research.reporting.results import Results
from prolip.research.running.run import run_plan
from prolip.research.running.source import Images
from test_features import noise
from tiny_bench import TinyEncoder, plan_on

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture(scope="module")
def cluster():
    """One for all tests: starting it is what takes time. Its folder has a short path, as sockets need it."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="ray") as folder:
        warnings.simplefilter("ignore")
        ray.init(
            address="local",
            num_cpus=3,
            include_dashboard=False,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
        yield
        ray.shutdown()


def test_features_are_those_of_one_process(cluster, photos, tmp_path, offline, monkeypatch):
    from prolip.features.pool_extract import store_features
    from prolip.io.pool import open_pool

    paths = [*sorted((photos / "test").rglob("*.png")), photos / "large.jpg"]
    noise(1, (1400, 1100)).save(paths[-1])
    broken, missing = photos / "broken.png", photos / "missing.png"
    broken.write_bytes(b"not an image")
    store, calls = FeatureStore(tmp_path / "store"), []
    for _ in range(2):
        with open_pool(1, "local") as pool:
            images = [*paths, broken, missing]
            store_features(pool, offline, images, store, lambda *call: calls.append(call))
    assert calls == [(14, 14), (14, 14)]  # the second run tries the broken file alone
    here, stored = extract(offline, paths), extract(offline, paths, store=store)
    assert stored.encoded == 0
    np.testing.assert_allclose(stored.features, here.features, atol=1e-5)


def test_embeddings_of_a_cluster_are_written(cluster, photos, tmp_path, prolip, colour_model):
    colour_model.save(tmp_path / "model")
    for name, ray_options in (("here.npz", ()), ("there.npz", ("--store", tmp_path / "s", "--ray", "local"))):
        line = ("embed", tmp_path / "model", photos / "train", "-o", tmp_path / name, *ray_options)
        code, _, err = prolip(*line)
        assert code == 0, err
    here, there = np.load(tmp_path / "here.npz"), np.load(tmp_path / "there.npz")
    assert here["paths"].tolist() == there["paths"].tolist()
    np.testing.assert_allclose(here["embeddings"], there["embeddings"], atol=1e-5)


def test_runs_have_the_results_of_one_process(cluster, photos, tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.encoders.load", lambda name, device="auto": TinyEncoder())
    plan, results = plan_on(photos), {}
    for name, where in (("here", {"jobs": 1}), ("there", {"jobs": 2, "ray": "local"})):
        path = tmp_path / f"{name}.sqlite"
        assert run_plan(plan, Images(photos.parent), path, **where).done == 13
        results[name] = [one.result["accuracy"] for one in Results.read("small", path).runs]
    assert results["here"] == results["there"]
