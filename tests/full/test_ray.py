"""The same results and the same features on a local Ray cluster, though a worker is killed in the middle."""

import os
import signal
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from prolip.core import InputError
from prolip.features import FeatureStore, extract
from prolip.features.images import ImageError
from prolip.research.running.result_store import ResultStore
from prolip.research.running.run import local_pool, run_jobs
from prolip.research.running.workers import RayPool
from test_bench import TinyEncoder, accuracies, planned
from test_features import noise

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
    from prolip.features.ray_extract import extract_on_ray

    paths = [*sorted((photos / "test").rglob("*.png")), photos / "large.jpg"]
    noise(1, (1400, 1100)).save(paths[-1])
    broken = photos / "broken.png"
    broken.write_bytes(b"not an image")
    store = FeatureStore(tmp_path / "store")
    found = extract_on_ray("offline", [*paths, broken], store, views=(0, 1), workers=1, skip_bad=True)
    assert (found.known, found.encoded, len(found.bad)) == (0, 13, 1)
    here = extract(offline, paths, views=(0, 1))
    stored = extract(offline, paths, views=(0, 1), store=store)
    assert stored.encoded == 0
    np.testing.assert_allclose(stored.features, here.features, atol=1e-5)
    for path in paths:
        os.utime(path, (1e9, 1e9))
    monkeypatch.setattr("prolip.features.store._SETTLED", 0.0)  # files that changed a moment ago count, too
    calls, missing = [], tmp_path / "missing.png"
    for known in (0, 13):  # files that have changed are encoded again; then the store knows them
        options = {"views": (0, 1), "skip_bad": True, "progress": lambda *call: calls.append(call)}
        found = extract_on_ray("offline", [*paths, missing], store, **options)
        assert (found.known, found.encoded) == (known, 13 - known)
        assert [path for path, _ in found.bad] == [str(missing)]
    assert calls == [(14, 14)] * 2
    with pytest.raises(ImageError):
        extract_on_ray("offline", [missing], store)
    with pytest.raises(InputError):
        extract_on_ray("offline", [], store)


def encoding_workers():
    """Processes of this cluster that encode; they change their command line to say so."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                line = (entry / "cmdline").read_bytes()
                if line.startswith(b"ray::") and b"_Encode" in line and is_ours(int(entry.name)):
                    found.append(int(entry.name))
    return found


def is_ours(process):
    """Whether a process descends from this one."""
    while process > 1 and process != os.getpid():
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process > 1


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found by Linux's /proc")
def test_a_worker_that_is_killed_loses_nothing(cluster, tmp_path, offline):
    from prolip.features.ray_extract import extract_on_ray

    folder = tmp_path / "many"
    folder.mkdir()
    paths = [folder / f"{i}.png" for i in range(500)]
    for i, path in enumerate(paths):
        noise(i, (160, 120)).save(path)
    killed = []

    def kill():
        while not killed:
            for worker in encoding_workers():
                with suppress(ProcessLookupError):  # one that is gone: the next
                    os.kill(worker, signal.SIGKILL)
                    killed.append(worker)
                    return
            time.sleep(0.02)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    store = FeatureStore(tmp_path / "store")
    found = extract_on_ray("offline", paths, store, workers=2)
    thread.join(10)
    assert killed
    assert (found.known, found.encoded, found.bad) == (0, 500, [])
    stored = extract(offline, paths, store=store)
    assert stored.encoded == 0
    some = [0, 99, 250, 499]
    here = extract(offline, [paths[i] for i in some])
    np.testing.assert_allclose(stored.features[:, some], here.features, atol=1e-5)


def test_embed_on_a_cluster_writes_the_index(cluster, photos, tmp_path, prolip):
    code, _, err = prolip("embed", photos / "train", "-o", tmp_path / "store", "--ray", "local", "--json")
    assert code == 0, err
    code, out, _ = prolip("embed", photos / "train", "-o", tmp_path / "store", "--json")
    assert code == 0
    assert '"already": 18' in out


def test_runs_have_the_results_of_one_process(cluster, photos, tmp_path, monkeypatch):
    monkeypatch.setattr("prolip.encoders.load", lambda name, device="auto": TinyEncoder())
    with ResultStore(tmp_path / "here.sqlite") as here, ResultStore(tmp_path / "ray.sqlite") as there:
        plan, jobs, _ = planned(photos, here)
        run_jobs(here, plan, jobs, local_pool(0))
        other, jobs, _ = planned(photos, there)
        assert run_jobs(there, other, jobs, RayPool("local", cpus=2)).done == 13
        assert accuracies(here, plan) == accuracies(there, other)
