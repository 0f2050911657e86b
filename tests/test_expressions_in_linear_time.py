"""No regular expression of ours takes more than linear time, whatever text it meets.

Every expression of the package is found by itself, and searched as the code searches it, in the texts that make a backtracking
matcher slow: long repetitions of what the expression accepts, and an end that it does not.
"""

import ast
import gc
import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import trainwright

LENGTH = 8_000
"""A quadratic search of this length takes 0.6 seconds and more, a linear one less than a millisecond."""
SECONDS = 0.3
METHODS = ("search", "match", "fullmatch", "sub", "findall", "finditer", "split")
UNITS = (
    "a",
    "A",
    "0",
    " ",
    "-",
    ".",
    "/",
    "_",
    "=",
    ":",
    '"',
    "\\",
    "(",
    "[",
    "%",
    "a.",
    "a-",
    "a=",
    "a:",
    "0.",
    "ab",
    "a ",
    '\\"',
    "://",
)


PACKAGES = sorted(found.name for found in pkgutil.iter_modules(trainwright.__path__, "trainwright.") if "dags" not in found.name)


def modules(package: str) -> Iterator[ModuleType]:
    """Yield a package, or a module, with all modules below it."""
    top = importlib.import_module(package)
    yield top
    for found in pkgutil.walk_packages(getattr(top, "__path__", []), f"{package}."):
        if (
            not found.name.endswith(("__main__", "orderly_exit", "launch")) and ".tools.programs." not in found.name
        ):  # they are programs
            yield importlib.import_module(found.name)


def expressions(package: str) -> Iterator[tuple[str, re.Pattern[Any], str]]:
    """Yield name, expression and the methods that its module calls on it."""
    for module in modules(package):
        tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
        called: dict[str, set[str]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in METHODS:
                called.setdefault(node.value.id, set()).add(node.attr)
        for attribute, value in vars(module).items():
            found = list(patterns_in(value))
            for expression in found:
                for method in sorted(called.get(attribute, set())) or (["search"] if len(found) > 1 else []):
                    yield f"{module.__name__}.{attribute}", expression, method


def patterns_in(value: object) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from patterns_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from patterns_in(each)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from patterns_in(getattr(value, field.name))


def texts(expression: re.Pattern[Any]) -> Iterator[str]:
    literal = expression.pattern if isinstance(expression.pattern, str) else expression.pattern.decode("latin-1")
    words = re.findall(r"[A-Za-z0-9]{2,}", literal)[:6]
    for unit in (*UNITS, *words, *(f"{word} " for word in words), *(f"{word}=" for word in words)):
        repeated = unit * (LENGTH // len(unit))
        yield repeated
        yield f"{repeated}\x00"


def apply(expression: re.Pattern[Any], method: str, subject: str | bytes) -> None:
    if method == "sub":
        expression.sub(subject[:0], subject)
    else:
        found = getattr(expression, method)(subject)
        list(found) if method == "finditer" else None


@pytest.mark.medium
def test_the_expressions_are_found() -> None:
    assert len(list(expressions("trainwright.api"))) > 20
    assert len(list(expressions("trainwright.jobs"))) > 30


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Time that the garbage collector takes with all that other tests have left is not that of an expression."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.medium
@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("package", PACKAGES)
def test_property_every_expression_takes_linear_time(package: str) -> None:
    for name, expression, method in expressions(package):
        for text in texts(expression):
            subject = text.encode() if isinstance(expression.pattern, bytes) else text
            began = time.process_time()
            apply(expression, method, subject)
            assert time.process_time() - began < SECONDS, f"{name}.{method}({text[:20]!r}... of {len(text)} letters)"
