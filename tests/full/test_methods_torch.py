"""Methods against scikit-learn and PyTorch: other people's regression, optimizers and derivatives."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import mse_loss, nll_loss

from prolip import Task, methods, solvers
from prolip.solvers.adam import AdamW, half_gradient
from prolip.solvers.adam import half as round_to_half
from reference.compare import LIMITS, differences
from reference.lines import references, same_lines
from reference.problems import made_up
from test_methods import create, problem


def double(x):
    return torch.tensor(np.asarray(x), dtype=torch.float64)


@pytest.mark.parametrize("name", ["gda", "task_res", "tip_adapter_f", "prolip+task_res"])
def test_torch_tensors_are_taken_and_numpy_comes_back(name):
    task = problem()
    tensors = Task(torch.tensor(task.x), torch.tensor(task.y), task.text, task.head, task.scale)
    logits = methods.create(name).fit(tensors).logits(torch.tensor(task.x[0]))
    assert isinstance(logits, np.ndarray)
    assert np.array_equal(logits, methods.create(name).fit(task).logits(task.x[0]))


SMALL = {"classes": 5, "width": 24, "dim": 16, "per_class": 400}
HALF_PROBLEMS = [*made_up(**SMALL, shots=(1, 16), views=(1,)), *made_up(**SMALL, shots=(4,), views=(10,))]
HALF_OPTIONS = {
    (float(options["lam"]), options["lr"])
    for line, experiment in same_lines()
    for label, options in references(line, experiment)
    if label == "prolip, Adam, float16"
} | {("1/N", 1e-4)}


class LogSoftmax(torch.autograd.Function):
    """Rounded once, as on a GPU; on a CPU, PyTorch rounds the logarithm of the sum to float16, too."""

    @staticmethod
    def forward(context, logits):
        found = logits.float().log_softmax(dim=1).half()
        context.save_for_backward(found)
        return found

    @staticmethod
    def backward(context, slope):
        (found,) = context.saved_tensors
        slope = slope.float()
        return (slope - found.float().exp() * slope.sum(dim=1, keepdim=True)).half()


class HalfProgram:
    """The authors' steps on float16 tensors; with a seed, images and features in another order."""

    def __init__(self, task, lam, seed=None):
        rng = np.random.default_rng(seed)
        self.rows, self.columns = np.arange(task.n), np.arange(task.x.shape[2])
        if seed is not None:
            self.rows, self.columns = rng.permutation(self.rows), rng.permutation(self.columns)
        self.task, self.lam = task, {"1/N": 1 / task.shots}.get(lam, lam)
        self.weight = torch.nn.Parameter(half(task.linear.weight[self.columns]))
        self.start = self.weight.detach().clone()

    def gradient(self, epoch):
        task, weight = self.task, self.weight
        x = half(task.x[(epoch + 1) % task.views][self.rows][:, self.columns])
        v = torch.addmm(half(task.linear.bias), x, weight)
        logits = task.scale * (v / v.norm(dim=-1, keepdim=True)) @ half(task.text.rows).T
        loss = nll_loss(LogSoftmax.apply(logits), torch.tensor(task.y[self.rows]))
        if self.lam:
            loss = loss + self.lam * mse_loss(weight, self.start, reduction="sum")
        (weight.grad,) = torch.autograd.grad(loss, weight)
        return self.numpy(weight.grad)

    def numpy(self, matrix):
        found = np.empty(matrix.shape, np.float32)
        found[self.columns] = matrix.detach().float().numpy()
        return found

    def run(self, lr):
        optimizer = torch.optim.Adam([self.weight], lr=lr, eps=1e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300)
        for epoch in range(300):
            self.gradient(epoch)
            optimizer.step()
            schedule.step()
        return self.numpy(self.weight)


@pytest.mark.parametrize("made", HALF_PROBLEMS, ids=[made.name for made in HALF_PROBLEMS])
def test_a_step_in_float16_is_the_programs_up_to_the_order_of_sums(made):
    """The last bit of some gradients depends on that order; Adam's step from a gradient does not."""
    task, rate = made.task, 1e-4
    program, other = HalfProgram(task, 0.0), HalfProgram(task, 0.0, seed=1)
    weight = program.numpy(program.weight)
    mine, theirs = (
        AdamW([weight], 1e-4, rounding=round_to_half),
        torch.optim.Adam([program.weight], lr=rate, eps=1e-4),
    )
    changed = changed_by_order = 0
    for epoch in range(100):
        gradient = program.gradient(epoch)
        with torch.no_grad():
            other.weight.copy_(program.weight[other.columns])
        view = task.with_features(task.x[(epoch + 1) % task.views], task.head)
        changed += np.sum(half_gradient(view, weight, 0.0) != gradient)
        changed_by_order += np.sum(other.gradient(epoch) != gradient)
        theirs.step()
        mine.step([gradient], rate)
        assert np.array_equal(weight, program.numpy(program.weight))
    assert changed <= max(3 * changed_by_order, 0.01 * 100 * weight.size)


@pytest.mark.parametrize(("lam", "lr"), sorted(HALF_OPTIONS, key=str))
def test_adam_in_float16_ends_where_the_program_does(lam, lr):
    """Without a penalty, the last bit of a gradient can make a step 1e4 times as long: in one problem."""
    far = 0
    for made in HALF_PROBLEMS:
        options = {"solver": "adam", "lam": lam, "lr": lr}
        mine = create("prolip", **options, precision="float16").fit(made.task)
        program = HalfProgram(made.task, lam)
        theirs = replace(mine, head=mine.head.with_weight(program.run(lr)))
        apart = differences(mine.logits(made.x), theirs.logits(made.x), made.y)
        assert apart["points"] <= LIMITS["points"]
        far += apart["logits"] > LIMITS["logits"]
        if lr > 1e-6:
            single = create("prolip", **options).fit(made.task)
            assert differences(mine.logits(made.x), single.logits(made.x), made.y)["logits"] > 0.1
    assert far <= 1


def half(x):
    return torch.tensor(np.asarray(x), dtype=torch.float16)


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("kind", ["plain", "bias", "residual"])
def test_adam_in_torch_takes_the_steps_of_adam_in_numpy(precision, kind):
    """What runs on a GPU, on the processor."""
    from prolip.core import Head
    from prolip.solvers import adam_torch

    rng = np.random.default_rng(0)
    y, weight = np.repeat(np.arange(4), 3), rng.normal(size=(20, 8)) / 4
    bias = None if kind == "plain" else rng.normal(size=8)
    head = Head(weight.astype(np.float32), bias, residual=kind == "residual")
    x = rng.normal(size=(3, 12, head.width)).astype(np.float32)
    task = Task(x, y, rng.normal(size=(4, 8)).astype(np.float32), head, 20.0)
    options = {"lr": 1e-4, "epochs": 30, "eps": 1e-4, "precision": precision}
    calls = []
    theirs = adam_torch.train(task, 0.5, **options, progress=lambda *call: calls.append(call), device="cpu")
    ours = solvers.adam(task, 0.5, **options)
    apart = np.abs(theirs - ours.weight)
    # In float16 the order of sums decides some last bits, and some of these a step.
    assert (apart.max() if precision == "float32" else np.quantile(apart, 0.8)) < 2e-6
    assert np.quantile(np.abs(theirs - weight), 0.8) > 1e-4
    assert ours.converged is None
    assert calls == [(20, 30), (30, 30)]
