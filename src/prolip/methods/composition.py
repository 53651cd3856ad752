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
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, partial, reduce
from operator import or_
from typing import Any, ClassVar

import numpy as np

from prolip.core import Fitted, Head, SavedModelError, Settings, Task, Text, UsageError, errors
from prolip.core.arrays import Array, Tensors
from prolip.io.onnx_graph import Graph
from prolip.methods import registry
from prolip.methods.base import FitContext, Method, Shape, plain
from prolip.methods.logit_bias import LogitBiasMethod, Sum
from prolip.methods.registry import register
from prolip.methods.selection import Splits, Tuning
from prolip.methods.zero_shot import ZeroShot
from prolip.solvers.adam import Steps

SOLVERS = ("exact", "adam")
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
    term_options
        Options of the terms: by name for every term that has it, as "term.name" for one. A plain
        lam="auto" leaves each term the rule that it has in a sum.
    """

    members: ClassVar[tuple[str, ...]] = ()

    solver: str | None = None
    lr: float = 1e-4
    epochs: int = 300
    seed: int = 0
    term_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.solver is not None and self.solver not in SOLVERS:
            raise errors.UnknownNameError("solver", str(self.solver), SOLVERS)

    @classmethod
    def options(cls) -> list[str]:
        """Its own, those of its terms, and those as "term.name"."""
        own = [f.name for f in fields(cls) if f.name != "term_options"]
        theirs = {name: registry.options(name) for name in cls.members}
        shared = [option for options in theirs.values() for option in options if option not in own]
        dotted = [f"{name}.{option}" for name, options in theirs.items() for option in options]
        return [*own, *dict.fromkeys(shared), *dotted]

    @classmethod
    def create(cls, **options: Any) -> Composition:
        """The sum, with options of its own and of its terms."""
        own = {f.name: options.pop(f.name) for f in fields(cls) if f.name in options}
        return cls(**own, term_options=options)

    def __reduce__(self) -> tuple[Any, ...]:
        settings = self.to_settings()
        return partial(registry.create, settings.method, **settings.options), ()

    def terms(self) -> list[LogitBiasMethod]:
        """The terms with their options."""
        built = []
        for name in self.members:
            cls = registry.get(name)
            assert issubclass(cls, LogitBiasMethod)
            known, given = cls.options(), dict(cls.options_in_sum)
            if self.solver == "adam":
                given |= cls.options_in_adam_sum
            given |= {"seed": self.seed} if "seed" in known else {}
            given |= {
                option: value
                for option, value in self.term_options.items()
                if option in known and (option, value) != ("lam", "auto")
            }
            dotted = {
                option.rpartition(".")[2]: value
                for option, value in self.term_options.items()
                if option.rpartition(".")[0] == name
            }
            built.append(cls.create(**given | dotted))
        return built  # type: ignore[return-value]

    def needs_tuning(self) -> bool:
        """Whether a term has something to choose before training."""
        return any(term.needs_tuning() for term in self.terms())

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Let each term choose what it has to, alone."""
        tuned = [term.tune(task, splits) for term in self.terms()]
        options = {
            f"{member}.{name}": value
            for member, one in zip(self.members, tuned, strict=True)
            for name, value in one.method.to_settings().options.items()
        }
        lam = next((one.report["lam"] for one in tuned if "lam" in one.report), None)
        report = {"lam_rule": self.term_options.get("lam"), "lam": lam}
        return Tuning(replace(self, term_options=options), report)

    def solve(self, task: Task, context: FitContext) -> Combined:
        """Train the terms together, and return zero-shot with each of them added."""
        terms = self.terms()
        exact = self._goes_to_minimum(task, terms)
        biases = [term.bias(task, exact) for term in terms]
        if exact:
            trained = Sum(task, biases).minimise()
        else:
            steps = Steps(self.lr, self.epochs, decay=max(term.decay_in_adam_sum for term in terms))
            trained = Sum(task, biases).train(steps, progress=context.progress)
        parts: list[Fitted] = [ZeroShot().fit(task)]
        for term, bias, parameters in zip(terms, biases, trained.parameters, strict=True):
            parts.append(replace(bias.fitted(parameters), settings=term.to_settings()))
        solver = "exact" if exact else "adam"
        return Combined(
            tuple(parts),
            (1.0 - len(biases), *[1.0] * len(biases)),
            settings=replace(self, solver=solver).to_settings(),
            report={"solver": solver, **trained.report()},
        )

    def _goes_to_minimum(self, task: Task, terms: list[LogitBiasMethod]) -> bool:
        without = [term.name for term in terms if not term.bias(task, exact=False).smooth]
        if self.solver == "exact" and without:
            raise UsageError(f'{without[0]} has no minimum to go to: use solver="adam"')
        return self.solver != "adam" and not without

    def to_settings(self, **chosen: Any) -> Settings:
        """Its own options, and those of the terms as they were given."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "term_options"}
        return Settings(self.name, plain({**own, **self.term_options, **chosen}))

    def count(self, shape: Shape) -> int:
        """The sum over terms."""
        return sum(term.count(shape) for term in self.terms())


@cache
def compose(name: str) -> type[Composition]:
    """The class of a sum like "prolip+task_res"."""
    members = tuple(part.strip() for part in name.split("+"))
    if len(members) < 2 or len(set(members)) < len(members):
        raise UsageError(f"a sum needs two or more different methods, like 'prolip+task_res', got {name!r}")
    classes = []
    for member in members:
        cls = registry.get(member)
        if not issubclass(cls, LogitBiasMethod):
            raise UsageError(f"{member} cannot be a term of a sum: it is not a bias on the zero-shot logits")
        classes.append(cls)
    described = {
        "name": "+".join(members),
        "summary": f"{' and '.join(members)}, trained together as biases on zero-shot",
        "open_class": all(cls.open_class for cls in classes),
        "size": " + ".join(cls.size for cls in classes),
        "needs": reduce(or_, (cls.needs for cls in classes)),
        "redundant_on_black_box": any(cls.redundant_on_black_box for cls in classes),
        "members": members,
        "__doc__": Composition.__doc__,
    }
    return type("Composition", (Composition,), described)


@register
@dataclass(frozen=True, eq=False)
class Combined(Fitted):
    """logits = sum_i w_i logits_i of fitted parts.

    A sum of logit biases on the zero-shot logits z is
    z + sum_i (logits_i - z): weights 1, and 1 - (number of parts) for zero-shot itself.
    """

    kind: ClassVar[str] = "combined"

    parts: tuple[Fitted, ...]
    weights: tuple[float, ...]

    @property
    def text(self) -> Text:  # type: ignore[override]
        """The classes, which all parts share."""
        return self.parts[0].text

    def logits(self, x: Any) -> Array:
        """The weighted sum of the parts' scores, [m, K]."""
        scores = [weight * part.logits(x) for weight, part in zip(self.weights, self.parts, strict=True)]
        total: Array = np.sum(scores, axis=0)
        return total

    @property
    def has_graph(self) -> bool:
        """Whether every part has one."""
        return all(part.has_graph for part in self.parts)

    def to_onnx(self, graph: Graph, x: str) -> str:
        """Add what `logits` computes to a graph."""
        weighted = [
            graph.node("Mul", part.to_onnx(graph, x), weight)
            for weight, part in zip(self.weights, self.parts, strict=True)
        ]
        return graph.node("Sum", *weighted)

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
        """Each part as it would be saved alone, and the weights."""
        parts = [
            {"kind": part.kind, "config": part.config(), "settings": asdict(part.settings)}
            for part in self.parts
        ]
        return {"parts": parts, "weights": list(self.weights)}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> Combined:
        """Restore each part by its kind."""
        saved, weights = config["parts"], tuple(float(weight) for weight in config["weights"])
        if not saved or len(saved) != len(weights):
            raise SavedModelError(f"a sum of {len(saved)} models with {len(weights)} weights")
        parts = []
        for i, part in enumerate(saved):
            prefix = f"{i}."
            own = {name.removeprefix(prefix): a for name, a in tensors.items() if name.startswith(prefix)}
            settings = Settings(**part["settings"])
            parts.append(registry.restore(part["kind"], own, part["config"], head, text, settings, {}))
        return cls(tuple(parts), weights)


for name in REPORTED:
    register(compose(name))
