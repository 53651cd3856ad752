"""Conventions that ruff has no rule for, checked on the syntax trees of the package."""

import ast
import re
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "prolip"

# Objects of other libraries that offer no other way.
THIRD_PARTY = {
    "visual._embeds",  # open_clip: the tokens that enter a ViT
    "error.args",  # of an exception: its message
    "entry.filename",  # of zipfile: the name that it extracts to
    "warnings.showwarning",  # documented as the thing to replace
    "Image.MAX_IMAGE_PIXELS",  # documented: the limit of the process
    "os._exit",  # documented: ends a worker process without clean-up
    "options.intra_op_num_threads",  # onnxruntime.SessionOptions
    "options.log_severity_level",
    "self._drawn.total",  # tqdm: known after the first call
    "block.forward",  # torch: wrapped for a while, then put back
    "view.flags.writeable",  # NumPy: a read-only view
}
THIRD_PARTY_NAMES = {"_asdict", "_replace", "grad"}  # of a named tuple; of a tensor


@cache
def trees():
    """Path below the package: syntax tree."""
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def own_attributes(cls):
    """Names that a class defines or assigns to itself: it may use them on other instances, such as copies."""
    names = {node.name for node in ast.walk(cls) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(cls):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            names.add(node.attr)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def is_self(node):
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def intrusions(node, own=frozenset()):
    """Yield uses of another object's private attribute and assignments to another object's attribute."""
    if isinstance(node, ast.ClassDef):
        own = own_attributes(node)
    if isinstance(node, ast.ImportFrom):
        yield from (f"line {node.lineno}: import {a.name}" for a in node.names if is_private(a.name))
    if isinstance(node, ast.Attribute) and not is_self(node.value) and node.attr not in own:
        text = ast.unparse(node)
        intrudes = is_private(node.attr) or not isinstance(node.ctx, ast.Load)
        if intrudes and text not in THIRD_PARTY and node.attr not in THIRD_PARTY_NAMES:
            yield f"line {node.lineno}: {text}"
    for child in ast.iter_child_nodes(node):
        yield from intrusions(child, own)


def test_intrusions_are_found():
    code = """
from other import _helper
class A:
    x: int
    def copy(self, other):
        other.x, self._y = 1, 2
        return other._y
def f(a):
    a.x = 1
    del a.y
    return a._y, a.__class__
"""
    found = [each.partition(": ")[2] for each in intrusions(ast.parse(code))]
    assert found == ["import _helper", "a.x", "a.y", "a._y"]


def test_nothing_reaches_into_another_object():
    found = [f"{path}, {each}" for path, tree in trees().items() for each in intrusions(tree)]
    assert found == []


def test_no_function_needs_scrolling():
    long = {}
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if body and (lines := body[-1].end_lineno - body[0].lineno + 1) > 60:
                    long[f"{path}, {node.name}"] = lines
    assert long == {}


def test_torch_is_imported_where_a_network_runs():
    """At module level only in files that say so by their name, and in the packages of tower methods."""
    found = set()
    for path, tree in trees().items():
        for node in tree.body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] == "torch" for name in names):
                found.add(path)
    towers = ("training", "prompts", "coupled_prompts", "lora_layers")
    allowed = tuple(f"research/towers/{name}.py" for name in towers)
    assert {
        path for path in found if not path.endswith("_torch.py") and not path.startswith(allowed)
    } == set()


def test_errors_of_the_library_name_parameters_not_options():
    """As `Parameter`, which the command line writes as options; the commands themselves may."""
    found = [
        f"{path}, line {node.lineno}"
        for path, tree in trees().items()
        if not path.startswith(("cli/", "research/"))
        for raised in ast.walk(tree)
        if isinstance(raised, ast.Raise)
        for node in ast.walk(raised)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.search(r"(?<!install )(?<![-\w])--[a-z]|\b(force|skip_bad|download|calibrate)=", node.value)
    ]
    assert found == []


def imported(folder):
    """Top-level names that the files of a folder import."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.split(".")[0]


def test_tests_and_benchmarks_do_not_import_each_other():
    tests, benchmarks = (SOURCE.parents[1] / name for name in ("tests", "benchmarks"))
    modules = {folder: {path.stem for path in folder.glob("*.py")} for folder in (tests, benchmarks)}
    assert modules[benchmarks] & set(imported(tests)) == set()
    assert (modules[tests] - modules[benchmarks]) & set(imported(benchmarks)) == set()


def test_contributing_names_files_that_exist():
    project = SOURCE.parents[1]
    text = (project / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|js|html|json|md|toml))`", text))
    assert len(named) > 50
    assert [
        name for name in sorted(named) if not any((root / name).exists() for root in (SOURCE, project))
    ] == []
