"""A sum of methods: "a+b", any two or more of those that are biases on the zero-shot logits.

The paper's supplement: each method learns a bias of its own on top of zero-shot, and the biases add up.
With f the frozen model's unit embedding,

    logits = s f T' + bias_a + bias_b            for prolip+task_res: s normalize(x W + b) T' + alpha s f R'

trained jointly on one cross-entropy and both penalties. ProLIP's and RLA's lam is 1/N here, as the paper's:
the one chosen for the matrix alone leaves too much freedom to two. What else a term has to choose (TaskRes'
lam, alpha) it chooses alone, first. By default the sum goes to its minimum; `solver="adam"` is the paper's
recipe: rate 1e-4, 300 epochs, no penalty on TaskRes and Tip-Adapter-F; with Tip-Adapter-F it is AdamW, whose
weight decay of 0.01 falls on the keys and on W - W0 (theirs on W, which the normalisation hides).

prolip+rla is the sum of both biases. The paper reports it without saying how the two combine, and the authors
published no program for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from operator import or_
from typing import Any, ClassVar, Literal

from prolip.core import Fitted, Head, SavedModelError, Settings, Task, Text, UsageError, errors
from prolip.core.arrays import Array, Tensors
from prolip.methods import registry
from prolip.methods.base import FitContext, Method
from prolip.methods.logit_bias import LogitBiasMethod, Sum
from prolip.methods.registry import register
from prolip.methods.selection import Splits, Tuning
from prolip.methods.zero_shot import ZeroShot
from prolip.solvers.adam import Steps

REPORTED = ("prolip+rla", "prolip+tip_adapter_f", "prolip+task_res")  # sums in the paper's tables


@dataclass(frozen=True)
class Composition(Method):
    """Terms that are trained together.

    Parameters
    ----------
    solver
        "exact", "adam" (the paper's), or None: exact where every term is smooth.
    lr, epochs
        Learning rate and epochs of "adam".
    seed
        Random seed for the terms.
    terms
        Options of terms by their names: {"task_res": {"alpha": 0.2}}.
    """

    members: ClassVar[tuple[str, ...]] = ()

    solver: Literal["exact", "adam"] | None = None
    lr: float = 1e-4
    epochs: int = 300
    seed: int = 0
    terms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.terms:
            errors.check_name("term", name, self.members)
        self.methods()

    def methods(self) -> list[LogitBiasMethod]:
        """The terms with their options."""
        built = []
        for name in self.members:
            cls = registry.get(name)
            assert issubclass(cls, LogitBiasMethod)
            given = {"seed": self.seed} if "seed" in cls.options() else {}
            given |= cls.options_in_sum | (cls.options_in_adam_sum if self.solver == "adam" else {})
            built.append(registry.create(name, **given | dict(self.terms.get(name, {}))))
        return built  # type: ignore[return-value]

    def needs_tuning(self) -> bool:
        """Whether a term has something to choose before training."""
        return any(term.needs_tuning() for term in self.methods())

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Let each term choose what it has to, alone."""
        tuned = [term.tune(task, splits) for term in self.methods()]
        chosen = {
            name: one.method.to_settings().options for name, one in zip(self.members, tuned, strict=True)
        }
        report = {name: figure for one in reversed(tuned) for name, figure in one.report.items()}
        return Tuning(replace(self, terms=chosen), report)

    def solve(self, task: Task, context: FitContext) -> Combined:
        """Train the terms together, and return zero-shot with each of them added."""
        terms = self.methods()
        exact = self._goes_to_minimum(task, terms)
        biases = [term.bias(task, exact) for term in terms]
        if exact:
            trained = Sum(task, biases).minimise()
        else:
            steps = Steps(self.lr, self.epochs, decay=max(term.decay_in_adam_sum for term in terms))
            trained = Sum(task, biases).train(steps, progress=context.progress)
        pairs = zip(biases, trained.parameters, strict=True)
        parts = ZeroShot().fit(task), *(bias.fitted(parameters) for bias, parameters in pairs)
        solver: Literal["exact", "adam"] = "exact" if exact else "adam"
        settings = replace(self, solver=solver).to_settings()
        return Combined(parts, settings=settings, report={"solver": solver, **trained.report()})

    def _goes_to_minimum(self, task: Task, terms: list[LogitBiasMethod]) -> bool:
        without = [term.name for term in terms if not term.bias(task, exact=False).smooth]
        if self.solver == "exact" and without:
            raise UsageError(f'{without[0]} has no minimum to go to: use solver="adam"')
        return self.solver != "adam" and not without

    def to_settings(self) -> Settings:
        """The options, under the name of the sum."""
        return replace(super().to_settings(), method=self.name)


@cache
def compose(name: str) -> type[Composition]:
    """The class of a sum like "prolip+task_res"."""
    members = tuple(name.split("+"))
    if len(set(members)) < len(members):
        raise UsageError(f"the terms of a sum must be different methods, got {name!r}")
    classes = []
    for member in members:
        cls = registry.get(member)
        if not issubclass(cls, LogitBiasMethod):
            raise UsageError(f"{member} cannot be a term of a sum: it is not a bias on the zero-shot logits")
        classes.append(cls)
    described = {
        "name": name,
        "summary": f"{' and '.join(members)}, trained together as biases on zero-shot",
        "open_class": all(cls.open_class for cls in classes),
        "size": " + ".join(cls.size for cls in classes),
        "needs": reduce(or_, (cls.needs for cls in classes)),
        "redundant_on_black_box": any(cls.redundant_on_black_box for cls in classes),
        "members": members,
        "__doc__": Composition.__doc__,
        "__module__": __name__,
    }
    return type("Composition", (Composition,), described)


@dataclass(frozen=True, eq=False)
class Combined(Fitted):
    """logits = z + sum_i (logits_i - z) of zero-shot, z, and of each method alone."""

    kind: ClassVar[str] = "combined"

    parts: tuple[Fitted, ...]  # zero-shot first

    @property
    def text(self) -> Text:  # type: ignore[override]
        """The classes, which all parts share."""
        return self.parts[0].text

    def logits(self, x: Any) -> Array:
        """Return the logits [m, K]: those of zero-shot, and what each part adds to them."""
        zero_shot, *others = (part.logits(x) for part in self.parts)
        return sum(others, (1.0 - len(others)) * zero_shot)

    def with_text(self, text: Any) -> Combined:
        """The same parts, other classes, if all of them can."""
        return replace(self, parts=tuple(part.with_text(text) for part in self.parts))

    def tensors(self) -> Tensors:
        """The tensors of part i behind the prefix `i.`."""
        return {
            f"{i}.{name}": array
            for i, part in enumerate(self.parts)
            for name, array in part.tensors().items()
        }

    def config(self) -> dict[str, Any]:
        """Each part as it would be saved alone."""
        return {"parts": [{"kind": part.kind, "config": part.config()} for part in self.parts]}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> Combined:
        """Restore each part by its kind."""
        parts = []
        for i, part in enumerate(config["parts"]):
            own = {name.removeprefix(f"{i}."): a for name, a in tensors.items() if name.startswith(f"{i}.")}
            settings = Settings(part["kind"])
            parts.append(registry.restore(part["kind"], own, part["config"], head, text, settings, {}))
        if not parts:
            raise SavedModelError("the sum has no parts")
        return cls(tuple(parts))


for name in REPORTED:
    register(compose(name))
