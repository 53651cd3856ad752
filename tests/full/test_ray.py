"""The same units and the same features on a local Ray cluster. One test: starting it is what takes time."""

import warnings

import numpy as np
import pytest

from prolip.bench.running.result_store import ResultStore
from prolip.bench.running.unit_loop import ThisProcess, run_plan
from prolip.features import FeatureStore, extract
from test_bench import TinyEncoder, accuracies, planned

ray = pytest.importorskip("ray")


@pytest.fixture
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_gives_the_same_results_and_features(cluster, photos, tmp_path, monkeypatch, offline):
    from prolip.bench.running.ray_pool import RayPool
    from prolip.features.ray_extract import extract_on_ray

    paths = sorted((photos / "test").rglob("*.png"))
    (photos / "test" / "broken.png").write_bytes(b"not a picture")
    store = FeatureStore(tmp_path / "store")
    found = extract_on_ray(
        "offline", [*paths, photos / "test" / "broken.png"], store, views=(0, 1), workers=1, skip_bad=True
    )
    assert (found.known, found.encoded, len(found.bad)) == (0, 12, 1)
    stored = extract(offline, paths, views=(0, 1), store=store)
    assert stored.encoded == 0
    assert np.allclose(stored.features, extract(offline, paths, views=(0, 1)).features, atol=1e-5)

    monkeypatch.setattr("prolip.encoders.load", lambda name, device="auto": TinyEncoder())
    (photos / "test" / "broken.png").unlink()
    with ResultStore(tmp_path / "here.sqlite") as here, ResultStore(tmp_path / "ray.sqlite") as there:
        plan, prepared, _ = planned(photos, here)
        run_plan(here, plan, prepared.files_of, ThisProcess())
        other, prepared, _ = planned(photos, there)
        assert run_plan(there, other, prepared.files_of, RayPool("local", cpus=2)).done == 13
        assert accuracies(here, plan) == accuracies(there, other)
