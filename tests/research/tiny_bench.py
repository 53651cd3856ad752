"""A tiny encoder, a small experiment, and results that are made up."""

import numpy as np

from prolip.core import Head
from prolip.encoders import Encoder, Preprocess
from prolip.research.catalogue import Entry, Experiment
from prolip.research.reporting.results import Results
from prolip.research.running.plan import make_plan
from prolip.research.running.result_store import RunResult
from prolip.research.running.run import prepare_jobs
from prolip.research.running.source import Images, Source


class TinyEncoder(Encoder):
    """Mean colours through a fixed random map."""

    name = "tiny"
    fingerprint = "tiny-1"
    scale = 10.0
    preprocess = Preprocess(16, (0.5,) * 3, (0.5,) * 3)
    device = "cpu"

    def __init__(self):
        self.head = Head(np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32) / 3)
        self.text_head = Head(np.eye(6, dtype=np.float32))

    def encode(self, pixels):
        corners = pixels.reshape(-1, 2, 8, 2, 8, 3).mean(axis=(2, 4), dtype=np.float32) / 255
        return corners.reshape(len(pixels), 12) - np.float32(0.4)

    def encode_text(self, prompts):
        rows = [np.random.default_rng(sum(map(ord, prompt))).normal(size=6) for prompt in prompts]
        return np.stack(rows).astype(np.float32)


SMALL = Experiment(
    "small",
    "A small experiment",
    "nowhere",
    "few_shot",
    (
        Entry("zero_shot", "Zero-shot", "zero_shot", published_row="CLIP (0-shot)"),
        Entry("prolip", "ProLIP, exact", "prolip", {"lam": "1/N"}),
        Entry(
            "adam",
            "ProLIP, Adam",
            "prolip",
            {"lam": "1/N", "solver": "adam", "epochs": 5},
            averaged_over=({"lr": 1e-3}, {"lr": 1e-2}),
            published_row="ProLIP",
        ),
    ),
    shots=(1, 2),
    seeds=(1, 2),
    views=2,
    published="validation_free",
)


def plan_on(photos, chosen=SMALL, **options):
    return make_plan(chosen, Images(photos.parent), datasets=("photos",), **options)


def jobs_of(plan, photos):
    return prepare_jobs(plan, Images(photos.parent).open(plan))


class Nothing(Source):
    """Datasets by name, without anything behind them."""

    has_images = True

    def select(self, experiment, names):
        return tuple(names)

    def encode(self, plan, progress=None):
        raise AssertionError("it began to encode")


TWO = ("dtd", "eurosat")


def made_up(chosen, measure, datasets=TWO, **options):
    """Results that a function of the run makes up."""
    given = {"models": ("RN50",), "shots": (1,), "seeds": (1,), "views": 10, **options}
    plan = make_plan(chosen, Nothing(), datasets=datasets, **given)
    return Results(plan, [RunResult(run, measure(run)) for run in plan.runs])


def keep(results: Results, condition) -> Results:
    """The same results without those of runs that do not fulfil a condition."""
    runs = [one if condition(one.run) else RunResult(one.run) for one in results.runs]
    return Results(results.plan, runs, results.against)


def figures(table, label, group=""):
    """The cells of a row by column."""
    cells = table.cells[(table.cells["label"] == label) & (table.cells["group"] == group)]
    return {cell.column: cell for cell in cells.itertuples()}
