"""One vocabulary: words that need our history are not used, and one name does not stand for several things.

`WORDS` are patterns that readers of scikit-learn's or Hugging Face's documentation would not guess, each with
what to write instead.
"""

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "src" / "prolip"
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
TEXT = {".py", ".md", ".js", ".html", ".css"}
PROMPT = "a picture of {}."  # CLIP's own words

WORDS = {
    "told": "reported, message",
    "rooms?": "space, package, capacity",
    "aside": "quarantine",
    "(?<!there )is no (?!longer|more|less|need)[a-z]+": "is not a",
    "unless named": "unless given",
    "of its part": "of its split",
    "evened|even(s|ing)? out": "scaled by its variance",
    "mend(s|ed|ing)?": "fix",
    "spoken": "prompt names",
    "honest": "out-of-fold, unbiased",
    "outsiders?": "out-of-distribution image",
    "foreign": "out-of-distribution, of another program",
    "strangers?": "untrusted",
    "brought": "supplied, precomputed",
    "whole numbers?": "integer, int8",
    "believed": "text weight",
    "witness(es)?": "evidence, estimate",
    "vouch(es|ed)?": "trusted",
    "taught": "trained",
    "asked": "requested, given, predicted",
    "unasked": "without asking",
    "anew": "again",
    "in the place of": "instead of",
    "pictures?": "image",
    "answers?": "prediction, response",
}


def occurrences(text):
    """Word: how often it occurs in a text, its identifiers taken apart."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    found = {word: len(re.findall(f"(?<![a-z])(?:{word})(?![a-z])", text, re.IGNORECASE)) for word in WORDS}
    return Counter({word: count for word, count in found.items() if count})


def files():
    """Package or file name, and path, of everything that a user or a contributor reads."""
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in TEXT:
            yield path.relative_to(PACKAGE).parts[0], path
    yield from ((f"benchmarks/{path.name}", path) for path in sorted((PROJECT / "benchmarks").glob("*.py")))
    yield from ((f"docs/{path.name}", path) for path in sorted((PROJECT / "docs").rglob("*.md")))
    yield from ((name, PROJECT / name) for name in TOP)


@cache
def found():
    counts = defaultdict(Counter)
    for part, path in files():
        counts[part] += occurrences(path.read_text(encoding="utf-8").replace(PROMPT, ""))
    return {part: dict(sorted(words.items())) for part, words in counts.items() if words}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def _damage_told(): ...", "told"),
        ("class BroughtEmbeddings:", "brought"),
        ("it is no folder", "(?<!there )is no (?!longer|more|less|need)[a-z]+"),
        ("there is no folder; it is no longer used; amended; retold; bedroom", None),
    ],
)
def test_words_are_found_in_identifiers_and_sentences(text, expected):
    assert list(occurrences(text)) == ([expected] if expected else [])


def test_the_words_are_not_used():
    assert {part: {word: f"say {WORDS[word]}" for word in words} for part, words in found().items()} == {}


def definitions(kind):
    """Name: modules that define a class, or a public constant, of that name."""
    places = defaultdict(set)
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if kind == "class" and isinstance(node, ast.ClassDef) and node.name[0] != "_":
                places[node.name].add(module)
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets if kind == "constant" else ():
                if isinstance(target, ast.Name) and re.fullmatch("[A-Z][A-Z0-9_]+", target.id):
                    places[target.id].add(module)
    return places


@pytest.mark.parametrize(("kind", "most"), [("class", 1), ("constant", 2)])
def test_a_name_has_one_meaning(kind, most):
    shared = {"BLOCK", "FORMAT"}  # of arrays that are computed in parts; of the files that a module writes
    places = definitions(kind)
    assert {name: found for name, found in places.items() if len(found) > most and name not in shared} == {}
