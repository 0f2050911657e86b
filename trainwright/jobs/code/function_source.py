"""Extracts the source of a training function, and rejects functions that use undefined names. Nothing is pickled.

As in the Kubeflow SDK only the function's source is sent, so a function must contain its imports. Unlike there, a function that uses
names from outside is rejected before submission.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import io
import symtable
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

MAX_SOURCE_BYTES = 96 * 1024
"""Linux limits a single argument to 128 KiB."""
_FUTURE = "from __future__ import annotations\n"
"""First line of the launcher's file."""


@dataclass(frozen=True)
class NamedSource:
    """The name of a function, and source text that defines it."""

    name: str
    source: str

    @classmethod
    def of(cls, value: dict[str, Any]) -> NamedSource:
        """Return the source of an object with `name` and `source`. Raises ValueError for any other."""
        if value.keys() != {"name", "source"} or not all(isinstance(text, str) for text in value.values()):
            raise ValueError("expected a function, its source, or an object with name and source")
        return cls(**value)

    def as_json(self) -> dict[str, str]:
        """Return an object of which `of` makes the same."""
        return asdict(self)


def source_of(func: Any) -> NamedSource | None:
    """Return the source of a function, or of source text; None for an empty value. Raises ValueError naming undefined names."""
    if func is None or func == "" or isinstance(func, NamedSource):
        return func or None
    if isinstance(func, dict):
        return NamedSource.of(func)
    if callable(func):
        return _from_function(inspect.unwrap(func))
    if isinstance(func, str):
        return _from_text(func)
    raise ValueError(f"expected a function or its source, got {type(func).__name__}")


def _from_function(func: Callable[..., Any]) -> NamedSource:
    if not inspect.isfunction(func) or func.__name__ == "<lambda>":
        raise ValueError(f"{func!r} is not a function defined with def")
    if func.__closure__:
        names = ", ".join(func.__code__.co_freevars)
        raise ValueError(f"{func.__name__} uses variables of its enclosing function ({names}); pass them as func_args")
    try:
        text = inspect.getsource(func)
    except (OSError, TypeError) as error:
        raise ValueError(f"the source of {func.__name__} cannot be read: {error}; define it in a file") from None
    return _from_text(dedent(text))


def dedent(text: str) -> str:
    """Remove the indentation of a nested function's source; lines inside string literals are not changed."""
    lines = lines_of(text)
    margin = lines[0][: len(lines[0]) - len(lines[0].lstrip(" \t"))]
    if not margin:  # nothing to take away
        return text
    tree = _tree_of("if True:\n" + text)
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)]
    text_lines = {number for node in texts for number in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)}
    return "".join(
        line if number in text_lines else line.removeprefix(margin) if line.startswith(margin) else line.lstrip(" \t")
        for number, line in enumerate(lines, 2)
    )


def lines_of(text: str) -> list[str]:
    """Split into lines as Python counts them: form feeds and Unicode line separators do not end a line."""
    return io.StringIO(text, newline="").readlines()


def _tree_of(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the source is not Python: {error}") from None


def _from_text(text: str) -> NamedSource:
    """Return the source of the last function of the text, which is the one that is called."""
    tree = _tree_of(text)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if not functions:
        raise ValueError("the source defines no function")
    chosen = functions[-1]
    if isinstance(chosen, ast.AsyncFunctionDef):
        raise ValueError(f"{chosen.name} is async; the training program calls it without an event loop")
    removed = {*_decorator_lines(text, chosen), *_future_lines(tree)}
    source = "".join(line for number, line in enumerate(lines_of(text), 1) if number not in removed)
    if missing := sorted(_undefined(source)):
        raise ValueError(f"{chosen.name} uses {', '.join(missing)} from outside; import or define it inside the function")
    if len(source.encode()) > MAX_SOURCE_BYTES:
        raise ValueError(f"{chosen.name} has more than {MAX_SOURCE_BYTES // 1024} KiB of source; send a folder with code=")
    return NamedSource(name=chosen.name, source=source)


def _decorator_lines(text: str, function: ast.FunctionDef) -> range:
    """Return the lines of decorators, which are removed: they belong to the defining file, such as an orchestrator's DAG."""
    if not function.decorator_list:  # nothing to remove
        return range(0)
    lines, first = lines_of(text), min(decorator.lineno for decorator in function.decorator_list)
    while not lines[first - 1].lstrip().startswith("@"):  # @( on a line of its own
        first -= 1
    return range(first, function.lineno)


def _future_lines(tree: ast.Module) -> list[int]:
    """Return the lines of `__future__` imports, which are removed: they must be at the start of the launcher's file."""
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    return [number for node in futures for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)]


def _undefined(source: str) -> set[str]:
    """Return the names that are neither defined in the source nor builtins. Annotations are not evaluated."""
    text = f"{_FUTURE}\n{source}"
    try:
        compile(text, "function", "exec", dont_inherit=True)
        table = symtable.symtable(text, "function", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the source is not Python: {error}") from None
    # the names of `from module import *` are unknown
    if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(ast.parse(source))):
        return set()
    defined = set(_defined_names(table))
    used = set(_global_names(table))
    return used - defined - set(dir(builtins)) - {"__name__", "__file__"}


def _defined_names(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names that the source assigns, at module level or with `global`."""
    for symbol in table.get_symbols():
        is_of_module = table.get_type() == "module" or symbol.is_declared_global()
        if is_of_module and (symbol.is_assigned() or symbol.is_imported()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _defined_names(child)


def _global_names(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module"):
            yield symbol.get_name()
    for child in table.get_children():
        if str(child.get_type()).rpartition(".")[2].lower() != "annotation":
            yield from _global_names(child)
