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
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from typing import Any, ClassVar

from prolip import methods
from prolip.core import Fitted, Settings, Task, UsageError, errors
from prolip.methods.base import Method, Progress, Shape, plain
from prolip.methods.common.combined import Combined
from prolip.methods.common.logit_bias import LogitBiasMethod, Sum
from prolip.solvers.adam import Steps
from prolip.solvers.threads import single_thread

SOLVERS = ("exact", "adam")
WITH_ADAM: dict[str, dict[str, Any]] = {"task_res": {"lam": 0.0}}  # the paper pulls on ProLIP's matrix alone


@dataclass(frozen=True)
class Composition(Method):
    """Terms that are trained together.

    Parameters
    ----------
    solver
        "exact", "adam" (the paper's), or None: exact where every term is smooth.
    lr, epochs
        Of "adam".
    seed
        Of everything random in the terms.
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
        theirs = {name: methods.options(name) for name in cls.members}
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
        return partial(methods.create, settings.method, **settings.options), ()

    def terms(self) -> list[LogitBiasMethod]:
        """The terms with their options."""
        built = []
        for name in self.members:
            cls = methods.get(name)
            assert issubclass(cls, LogitBiasMethod)
            known, given = cls.options(), dict(cls.in_sum)
            if self.solver == "adam":
                given |= WITH_ADAM.get(name, {})
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

    @single_thread()
    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Combined:
        """Let each term choose what it has to, then train the sum."""
        started = self.begin(task, validation)
        terms, reports = [], []
        for given in self.terms():
            task, term, figures = given.resolve(task, validation if given.resolves() else None)
            terms.append(term)
            reports.append(figures)
        exact = self._goes_to_minimum(task, terms)
        biases = [term.bias(task, exact) for term in terms]
        if exact:
            trained = Sum(task, biases).minimise()
        else:
            decay = 0.01 if "tip_adapter_f" in self.members else 0.0
            trained = Sum(task, biases).train(Steps(self.lr, self.epochs, decay=decay), progress=progress)
        parts: list[Fitted] = [methods.create("zero_shot").fit(task)]
        for term, bias, parameters, figures in zip(terms, biases, trained.parameters, reports, strict=True):
            parts.append(replace(bias.fitted(parameters), settings=term.to_settings(), report=figures))
        fitted = Combined(tuple(parts), (1.0 - len(biases), *[1.0] * len(biases)))
        lam = next((figures["lam"] for figures in reports if "lam" in figures), None)
        rule, solver = self.term_options.get("lam"), "exact" if exact else "adam"
        options = {
            f"{member}.{name}": value
            for member, term in zip(self.members, terms, strict=True)
            for name, value in term.to_settings().options.items()
        }
        settled = replace(self, solver=solver, term_options=options)
        return settled.finish(
            fitted, task, started, lam_rule=rule, lam=lam, solver=solver, **trained.report()
        )

    def chooses(self) -> bool:
        """Whether a term has something to choose before training."""
        return any(term.resolves() for term in self.terms())

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
        cls = methods.get(member)
        if not issubclass(cls, LogitBiasMethod):
            raise UsageError(f"{member} cannot be a term of a sum: it is not a bias on the zero-shot logits")
        classes.append(cls)
    described = {
        "name": "+".join(members),
        "summary": f"{' and '.join(members)}, trained together as biases on zero-shot",
        "open_class": all(cls.open_class for cls in classes),
        "size": " + ".join(cls.size for cls in classes),
        "needs": tuple(dict.fromkeys(need for cls in classes for need in cls.needs)),
        "members": members,
        "__doc__": Composition.__doc__,
    }
    return type("Composition", (Composition,), described)
