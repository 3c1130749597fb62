"""Rules of ci/tidy.py about the Python shim: which module imports which, who writes a field, private names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

# The shim's packages and top modules, and which others each may import, even for types alone.
SHIM = "python_shim/torch_collab"
_BASE = {"escape", "environment", "formatting", "log", "native", "options", "knob_fields", "torch_compat", "_C"}
ARROWS: dict[str, set[str]] = {
    "escape": set(),
    "environment": set(),
    "events": set(),
    "formatting": set(),
    "knob_fields": set(),
    "options": {"knob_fields"},
    "torch_compat": set(),
    "log": {"escape"},
    "native": {"escape", "environment", "knob_fields", "log", "_C"},
    "network": _BASE - {"torch_compat"},  # commands use it when torch does not load
    "model": {"formatting", "log", "torch_compat"},
    "world": _BASE | {"network", "model"},
    "swarm": _BASE | {"network", "model", "world"},
    "capture": _BASE | {"network", "model", "world", "swarm"},
    "backend": _BASE | {"network", "model", "world", "swarm", "capture"},
    "api": _BASE | {"world", "capture"},
    "integrations": {"events", "log", "world", "api"},
    "__init__": {"api", "backend", "options"},
    "rendezvous": _BASE | {"network"},
    "planning": {"events", "formatting", "native"},
    "cli": _BASE - {"torch_compat"} | {"network", "planning", "swarm", "__init__"},
}
# Modules that import other modules of the shim inside functions, and why those imports have to wait.
WAITS = {
    "__init__": "read at every `import torch`",
    "backend.registration": "read at every `import torch`",
    "cli": "a command loads what it needs, and `collab lab` needs no torch",
    "native": "the compiled module needs torch's libraries in the process",
    "rendezvous": "read at every start of torchrun",
}
TORCH_COMPAT = f"{SHIM}/torch_compat.py"
NOT_TORCHS = {"_sslobj", "_actions", "_choices_actions"}  # private names of Python's ssl and argparse


@dataclass(frozen=True)
class Import:
    line: int
    module: str  # below torch_collab: "world.state"; "__init__" for the package itself
    waits: bool  # inside a function


def imports(text: str, modules: set[str]) -> Iterator[Import]:
    def walk(node: ast.AST, waits: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ImportFrom) and (child.module or "").split(".")[0] == "torch_collab":
                base = ".".join((child.module or "").split(".")[1:])
                for alias in child.names:
                    name = f"{base}.{alias.name}".lstrip(".")
                    yield Import(child.lineno, name if name in modules else base or "__init__", waits)
            else:
                yield from walk(child, waits or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    yield from walk(ast.parse(text), False)


def arrows(texts: Mapping[str, str]) -> Iterator[tuple[str, int, str]]:
    """(path, line, what to do) of each import that does not point down; `texts` are the shim's modules by path."""
    paths = {module_of(path): path for path in texts}
    modules = {*paths, "_C"}
    after: dict[str, set[str]] = {}
    for module, path in paths.items():
        found = list(imports(texts[path], modules))
        after[module] = {each.module for each in found}
        here = module.split(".")[0]
        if here not in ARROWS:
            yield path, 1, f"{here} is not in the map of packages (ci/rules_shim.py, ARROWS)"
            continue
        for each in found:
            to = each.module.split(".")[0]
            if to != here and to not in ARROWS[here]:
                yield path, each.line, f"{here} must not import from {to}"
            if each.waits and module not in WAITS:
                yield path, each.line, "import it at the top, or say in ci/rules_shim.py (WAITS) why it waits"
    for module in sorted(paths):
        if circle := way(after, module, module):
            yield paths[module], 1, f"imports run in a circle: {' -> '.join(circle)}"


def module_of(path: str) -> str:
    parts = Path(path).relative_to(SHIM).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def way(after: dict[str, set[str]], start: str, end: str) -> list[str]:
    """The shortest path from one module to another, including both ends; empty if there is none."""
    ways = [[start]]
    seen: set[str] = set()
    for so_far in ways:
        for module in sorted(after.get(so_far[-1], ())):
            if module == end:
                return [*so_far, end]
            if module not in seen:
                seen.add(module)
                ways.append([*so_far, module])
    return []


def fields(tree: ast.AST) -> set[str]:
    """The fields that the classes declare, and those that their methods set."""
    inside = [node for each in ast.walk(tree) if isinstance(each, ast.ClassDef) for node in ast.walk(each)]
    declared = {
        each.target.id for each in inside if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    return declared | {each.attr for each in inside if writes(each) and own(each)}


def writes(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)


def own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def foreign_writes(texts: Mapping[str, str]) -> Iterator[tuple[str, int, str]]:
    """(path, line, what to do) where a module writes a field that only other modules' classes have, by its name."""
    trees = {path: ast.parse(text) for path, text in texts.items()}
    known = {path: fields(tree) for path, tree in trees.items()}
    everywhere = set().union(*known.values())
    for path, tree in trees.items():
        for node in filter(writes, ast.walk(tree)):
            if not own(node) and node.attr in everywhere - known[path]:
                yield path, node.lineno, f"{node.attr} is a field of another module's class: give that a method for it"


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NOT_TORCHS


def private_names(node: ast.AST) -> Iterator[str]:
    """The private names of others that this node uses."""
    if isinstance(node, ast.Attribute) and private(node.attr):
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
            yield node.attr
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
        name = node.args[1]
        if node.func.id in ("getattr", "hasattr", "setattr") and isinstance(name, ast.Constant):
            yield from filter(private, [str(name.value)])
    elif isinstance(node, ast.Import | ast.ImportFrom):
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        whole = [f"{module}.{alias.name}" for alias in node.names]
        yield from (
            name for name in whole if name.lstrip(".").startswith("torch.") and any(map(private, name.split(".")))
        )


def private_uses(path: str, text: str) -> Iterator[tuple[int, str]]:
    """(line, what to do) of each use of another module's private name."""
    if path == TORCH_COMPAT:
        return
    for node in ast.walk(ast.parse(text)):
        for name in private_names(node):
            yield getattr(node, "lineno", 1), f"{name} is private to torch: only {TORCH_COMPAT} touches such names"
