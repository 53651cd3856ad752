"""Image towers at full size, with random weights: ONNX Runtime in float32 and int8 beside torch, in one run.

    python benchmarks/onnx_towers.py [--models ViT-B-32 ViT-B-16 RN50] [--images 32] [--repeats 3]

open_clip makes the towers and runs them in torch with as many threads as there are cores; the same weights
are written as ONNX, float32 and dynamic int8 (matrix products; convolutions stay in float32), and run as
`onnx:` models run. Needs the extras.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from prolip.core.arrays import Array, unit_rows
from prolip.encoders.onnx import Tower
from prolip.io.environment import cores
from prolip.io.onnx_graph import OnnxModel


def images_per_second(run: Callable[[], object], images: int, repeats: int) -> float:
    """The best of some runs, after one that does not count."""
    run()
    found = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        found.append(images / (time.perf_counter() - started))
    return max(found)


def write_graphs(visual: torch.nn.Module, size: int, folder: Path) -> tuple[Path, Path]:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    whole, small = folder / "model.onnx", folder / "model_int8.onnx"
    torch.backends.mha.set_fastpath_enabled(False)  # an operation that the exporter does not know
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            visual, (torch.rand(1, 3, size, size),), str(whole), input_names=["image"], dynamo=False,
            output_names=["embedding"], dynamic_axes={"image": {0: "batch"}, "embedding": {0: "batch"}},
            opset_version=17,
        )  # fmt: skip
        quantize_dynamic(
            whole, small, weight_type=QuantType.QInt8, per_channel=True, op_types_to_quantize=["MatMul"]
        )
    torch.backends.mha.set_fastpath_enabled(True)
    return whole, small


def main() -> None:
    import open_clip

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=["ViT-B-32", "ViT-B-16", "RN50"])
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(cores())
    for name in options.models:
        torch.manual_seed(0)
        compare(
            name, open_clip.create_model(name, pretrained=None).visual.eval(), options.images, options.repeats
        )


def compare(name: str, visual: torch.nn.Module, images: int, repeats: int) -> None:
    size = visual.image_size[0] if isinstance(visual.image_size, tuple) else visual.image_size
    pixels = np.random.default_rng(0).normal(size=(images, 3, size, size)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        graphs = write_graphs(visual, size, Path(folder))
        batch = torch.from_numpy(pixels)
        base = images_per_second(lambda: visual(batch), images, repeats)
        expected = visual(batch[:4]).numpy()
        print(f"{name}: torch {base:.1f} images/s", flush=True)
        for path, precision in zip(graphs, ("fp32", "int8"), strict=True):
            tower = Tower(OnnxModel(path), precision)
            head, reason = tower.check({"image": pixels[:2]})
            embedded: Array = head(tower({"image": pixels[:4]}))
            cosine = (unit_rows(embedded) * unit_rows(expected)).sum(axis=1).min()
            rate = images_per_second(partial(tower, {"image": pixels}), images, repeats)
            cut = "cut before the projection" if reason is None else f"black box: {reason}"
            seen = f"{rate:.1f} images/s, {rate / base:.2f} x torch, cosine {cosine:.5f}, {cut}"
            print(f"    onnx {precision}: {seen}", flush=True)


if __name__ == "__main__":
    main()
