"""A training function as source text: what is sent of it, and what it would lack where it runs. Nothing is pickled.

As in the Kubeflow SDK the source of the function is all that travels, so a function must bring its own imports; unlike there, a
function that uses a name from outside is refused here, before a node starts.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import io
import symtable
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict

MOST_BYTES = 96 * 1024
"""Linux takes no single argument of more than 128 KiB."""
_FUTURE = "from __future__ import annotations\n"
"""What the launcher's file begins with."""


class NamedSource(BaseModel):
    """Source of one function, with whatever stands beside it, and the function's name."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str
    source: str


def source_of(func: Any) -> NamedSource | None:
    """From a function, or from the text of one; None for nothing. Raises ValueError saying what the function would lack."""
    if func is None or func == "" or isinstance(func, NamedSource):
        return func or None
    if isinstance(func, dict):
        return NamedSource.model_validate(func)
    if callable(func):
        return _from_function(inspect.unwrap(func))
    if isinstance(func, str):
        return _from_text(func)
    raise ValueError(f"expected a function or its source, got {type(func).__name__}")


def _from_function(func: Callable[..., Any]) -> NamedSource:
    if not inspect.isfunction(func) or func.__name__ == "<lambda>":
        raise ValueError(f"{func!r} is no function defined with def")
    if func.__closure__:
        names = ", ".join(func.__code__.co_freevars)
        raise ValueError(f"{func.__name__} uses variables of the function around it ({names}); pass them as func_args")
    try:
        text = inspect.getsource(func)
    except (OSError, TypeError) as error:
        raise ValueError(f"the source of {func.__name__} cannot be read: {error}; define it in a file") from None
    return _from_text(dedented(text))


def dedented(text: str) -> str:
    """The source of a function that was defined within something, at the left margin; lines inside texts stay as they are."""
    lines = lines_of(text)
    margin = lines[0][: len(lines[0]) - len(lines[0].lstrip(" \t"))]
    if not margin:
        return text
    tree = _tree_of("if True:\n" + text)
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)]
    within = {number for node in texts for number in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)}
    return "".join(
        line if number in within else line.removeprefix(margin) if line.startswith(margin) else line.lstrip(" \t")
        for number, line in enumerate(lines, 2)
    )


def lines_of(text: str) -> list[str]:
    """The lines that Python counts: a form feed or a line separator within one ends none."""
    return io.StringIO(text, newline="").readlines()


def _tree_of(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the source is not Python: {error}") from None


def _from_text(text: str) -> NamedSource:
    """The last function of the text is the one that is called."""
    tree = _tree_of(text)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if not functions:
        raise ValueError("the source defines no function")
    chosen = functions[-1]
    if isinstance(chosen, ast.AsyncFunctionDef):
        raise ValueError(f"{chosen.name} is async; the training program calls it without an event loop")
    source = _without(text, [*_decorator_lines(text, chosen), *_future_lines(tree)])
    if missing := sorted(_undefined(source)):
        raise ValueError(f"{chosen.name} uses {', '.join(missing)} from outside; import or define it inside the function")
    if len(source.encode()) > MOST_BYTES:
        raise ValueError(f"{chosen.name} has more than {MOST_BYTES // 1024} KiB of source; send a folder with code=")
    return NamedSource(name=chosen.name, source=source)


def _decorator_lines(text: str, function: ast.FunctionDef) -> range:
    """A decorator belongs to the place where the function was written, such as an orchestrator's file."""
    if not function.decorator_list:
        return range(0)
    lines, first = lines_of(text), min(decorator.lineno for decorator in function.decorator_list)
    while not lines[first - 1].lstrip().startswith("@"):  # @( on a line of its own
        first -= 1
    return range(first, function.lineno)


def _future_lines(tree: ast.Module) -> list[int]:
    """The launcher's file begins with one, and Python takes no other after a text that describes the module."""
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    return [number for node in futures for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)]


def _without(text: str, numbers: list[int]) -> str:
    return "".join(line for number, line in enumerate(lines_of(text), 1) if number not in set(numbers))


def _undefined(source: str) -> set[str]:
    """Names that are looked up outside of the source and are not Python's own. Annotations are not evaluated."""
    text = f"{_FUTURE}\n{source}"
    try:
        compile(text, "function", "exec", dont_inherit=True)
        table = symtable.symtable(text, "function", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the source is not Python: {error}") from None
    if _imports_all(source):
        return set()
    defined = set(_defined_names(table))
    used = set(_global_names(table))
    return used - defined - set(dir(builtins)) - {"__name__", "__file__"}


def _imports_all(source: str) -> bool:
    """`from module import *` defines nobody knows what."""
    return any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(ast.parse(source)))


def _defined_names(table: symtable.SymbolTable) -> Iterator[str]:
    """What the text itself assigns, at its top or by `global` further in."""
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
