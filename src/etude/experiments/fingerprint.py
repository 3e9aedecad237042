"""What the numbers of an experiment came from, as two short digests: one of the experiment itself,
one of the code that it ran on. A stored verdict is stale when they are no longer what they were.

The first covers the function that runs the experiment and all that it uses, by name and however
indirectly, of the modules of `etude.experiments`: settings, sizes, printed figures, claims. The
second covers the modules of Etude that those import, directly or not, all rules, environments and
presets, which are loaded by their names, and the versions of the libraries. Not covered are the
parts in LEFT_OUT, which no number depends on. Comments and docstrings do not count.
"""

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent
HERE = "etude.experiments"
LEFT_OUT = ("cli", "report", "runs", "placing", "comparing", "tuning", "experiments", "kinds")
LOADED_BY_NAME = ("rules/**/*.py", "envs/*.py", "training/presets/**/*.json")
"""What is below `envs`, simulators outside JAX, no experiment uses."""
LIBRARIES = ("jax", "jaxlib", "optax", "equinox", "gymnax")
DIGITS = 12


class Fingerprint(NamedTuple):
    experiment: str
    code: str


def fingerprint(home: str) -> Fingerprint:
    """Of the experiment that `home` runs, a module:function of this package, as it now is."""
    module, _, function = home.partition(":")
    used = _used(f"{HERE}.{module}", function)
    texts = [_module(name).definitions[x] for name, x in sorted(used)]
    own = {name for name, _ in used}
    return Fingerprint(_digest(texts), _code(frozenset(own)))


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:DIGITS]


# --- The experiment -------------------------------------------------------------------------------


class Module(NamedTuple):
    definitions: dict[str, str]
    """The text of all statements that set a name at the top level."""
    uses: dict[str, set[str]]
    """The names in them."""
    imported: dict[str, tuple[str, str]]
    """Names of other experiments' modules: where from, and what they are called there."""


@functools.cache
def _module(name: str) -> Module:
    tree, lines = _parsed(_path(name))
    found = Module({}, {}, {})
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(HERE):
            source = str(statement.module)
            found.imported.update({x.asname or x.name: (source, x.name) for x in statement.names})
        text = "\n".join(lines[i] for i in _span(statement) if i in lines)
        names = {x.id for x in ast.walk(statement) if isinstance(x, ast.Name)}
        for target in _targets(statement):
            found.definitions[target] = f"{found.definitions.get(target, '')}\n{text}"
            found.uses[target] = found.uses.get(target, set()) | names
    return found


def _used(module: str, name: str) -> set[tuple[str, str]]:
    """All definitions that one leads to, itself among them."""
    found: set[tuple[str, str]] = set()
    left = [(module, name)]
    while left:
        where, name = left.pop()
        known = _module(where)
        if name in known.imported:
            left.append(known.imported[name])
        elif name in known.definitions and (where, name) not in found:
            found.add((where, name))
            left += [(where, x) for x in known.uses[name]]
    return found


def _targets(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        targets = [statement.target]
    else:
        return []
    return [x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name)]


def _span(statement: ast.stmt) -> range:
    """Its lines, decorators among them."""
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(x.lineno for x in decorators)])
    return range(first, (statement.end_lineno or first) + 1)


# --- The code that it runs on ---------------------------------------------------------------------


@functools.cache
def _code(own: frozenset[str]) -> str:
    files = {path for pattern in LOADED_BY_NAME for path in PACKAGE.glob(pattern)}
    left = [imported for name in own for imported in _imports(_path(name))]
    left += [x for path in files if path.suffix == ".py" for x in _imports(path)]
    while left:
        path = left.pop()
        if path not in files:
            files.add(path)
            left += _imports(path)
    texts = [_text(path) for path in sorted(files)]
    return _digest([*(f"{x} {version(x)}" for x in LIBRARIES), *texts])


@functools.cache
def _imports(path: Path) -> list[Path]:
    """The modules of Etude that one imports, also within functions, but for those left out."""
    found = []
    for node in ast.walk(_parsed(path)[0]):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "etude":
            module = str(node.module)
            found += [module, *(f"{module}.{x.name}" for x in node.names)]
        elif isinstance(node, ast.Import):
            found += [x.name for x in node.names if x.name.split(".")[0] == "etude"]
    kept = [x for x in found if x.split(".")[1:2] != [] and x.split(".")[1] not in LEFT_OUT]
    return [path for x in kept if (path := _path(x)).is_file()]


def _path(module: str) -> Path:
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _text(path: Path) -> str:
    if path.suffix != ".py":
        return path.read_text()
    return "\n".join(_parsed(path)[1].values())


@functools.cache
def _parsed(path: Path) -> tuple[ast.Module, dict[int, str]]:
    """A module, and its lines by number without comments, docstrings and empty ones."""
    text = path.read_text()
    tree = ast.parse(text)
    told = {i for span in _docstrings(tree) for i in span}
    lines = {i: line.rstrip() for i, line in enumerate(text.splitlines(), 1) if i not in told}
    return tree, {i: x for i, x in lines.items() if x.strip() and not x.lstrip().startswith("#")}


def _docstrings(tree: ast.Module) -> Iterator[range]:
    """Strings that are statements: those of modules, classes and functions, and of fields."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                yield _span(node)
