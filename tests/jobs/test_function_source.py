"""A function as text: what of it is sent, and what is refused because it would be missing there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from factories import train_request

from trainwright.jobs.code.function_source import MAX_SOURCE_BYTES, source_of
from trainwright.jobs.request.invalid_settings import InvalidSettings


def decorated(*_args: Any, **_options: Any) -> Callable[..., Any]:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **more: Any) -> Any:
            return function(*args, **more)

        return call

    return wrap


def plain(n: int = 1) -> int:
    import math

    return math.floor(n) + 1


@decorated("a", b=["c"])
@decorated(
    # over several lines
    "x"
)
def with_decorators(n: int) -> int:
    # a comment
    return n * 2


class Holder:
    def method(self) -> None: ...


def text_of(func: Any) -> str:
    source = source_of(func)
    assert source is not None
    return source.source


def value_of(func: Any, **arguments: Any) -> Any:
    """What the sent source returns, in a module of its own."""
    source = source_of(func)
    assert source is not None
    module: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("from __future__ import annotations\n\n" + source.source, "sent", "exec", dont_inherit=True), module)
    return module[source.name](**arguments)


def test_decorators_are_left_behind() -> None:
    assert text_of(with_decorators) == "def with_decorators(n: int) -> int:\n    # a comment\n    return n * 2\n"
    text = "import os\nA = 1\n\n@task.trainjob(\n    a=1,\n)\n@other\ndef f():\n    return A, os.sep\n"
    assert text_of(text) == "import os\nA = 1\n\ndef f():\n    return A, os.sep\n"
    assert text_of("@(\n    # why\n    task.trainjob\n)\ndef f():\n    return 1\n") == "def f():\n    return 1\n"


def test_a_closure_is_refused() -> None:
    within = 4

    def inner() -> int:
        return within

    with pytest.raises(ValueError, match=r"inner uses variables of its enclosing function \(within\); pass them as func_args"):
        source_of(inner)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("def f():\n    return os.sep", "os"),
        ("def f(a=DEFAULT, *, b=OTHER):\n    return a", "DEFAULT, OTHER"),
        ("def f():\n    def g():\n        return x\n    return g", "x"),
        ("def f():\n    return [y for _ in range(3) if z]", "y, z"),
        ("def f():\n    class A(Base):\n        b = c\n    return A", "Base, c"),
        ("def f():\n    @deco\n    def g(): ...\n    return g", "deco"),
        ("def f():\n    return lambda: x", "x"),
        ("def f():\n    global x\n    return x", "x"),
        ("def f():\n    try:\n        return 1\n    except MyError:\n        return 2", "MyError"),
        ("def f():\n    return f'{x!r:{width}}'", "width, x"),
        ("def f():\n    a: int\n    return b", "b"),
        ("X = y\ndef f():\n    return X", "y"),
        ("def f():\n    match 1:\n        case Some.thing:\n            return 1", "Some"),
        ("def f():\n    return (yield nothing)", "nothing"),
    ],
)
def test_a_name_from_outside_is_refused(text: str, missing: str) -> None:
    with pytest.raises(ValueError, match=f"f uses {missing} from outside; import or define it inside the function"):
        source_of(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("import os\ndef f():\n    return os.sep", "/"),
        ("import os.path as p, sys\ndef f():\n    return p.sep, sys.maxsize > 0", ("/", True)),
        ("try:\n    import tomllib\nexcept ImportError:\n    tomllib = None\ndef f():\n    return tomllib is None", False),
        ("def help():\n    return 1\ndef f():\n    return help()", 1),
        ("class A:\n    x = 1\n    y = [x, 2]\ndef f():\n    return A().y", [1, 2]),
        ("def f(a: Missing = 1, *b: Missing) -> Missing:\n    c: Missing = a\n    return c", 1),
        ("class A:\n    x: Missing\n    y: Missing = 2\ndef f():\n    return A.y", 2),
        ("def g():\n    global x\n    x = 5\ndef f():\n    g()\n    return x", 5),
        ("class A:\n    global z\n    z = 2\ndef f():\n    return z", 2),
        ("[last := n for n in range(3)]\ndef f():\n    return last", 2),
        ("def f():\n    if (n := 3) > 2:\n        return n", 3),
        ("with open('/dev/null') as nothing, open('/dev/null'):\n    pass\ndef f():\n    return nothing.closed", True),
        ("for i in range(2):\n    pass\ndef f():\n    return i", 1),
        ("def f():\n    return [a + b for a in range(2) for b in range(a)]", [1]),
        ("def f():\n    def g(n):\n        return n and g(n - 1) + 1\n    return g(3)", 3),
        ("def f():\n    from math import sqrt as root\n    return root(4)", 2.0),
        ("def f():\n    def g():\n        nonlocal x\n        x += 1\n    x = 1\n    g()\n    return x", 2),
        ("from math import *\ndef f():\n    return floor(pi)", 3),
        ("def f():\n    class A:\n        def me(self):\n            return __class__.__name__\n    return A().me()", "A"),
        ("def f():\n    match {'a': 1}:\n        case {'a': n, **rest}:\n            return n, rest", (1, {})),
        ('"""About."""\nfrom __future__ import annotations\nimport os\ndef f():\n    return os.sep', "/"),
        ("from __future__ import (\n    annotations,\n)\ndef f(a: X = 1):\n    return a", 1),
        ("def f():\n    return __name__", "__main__"),
        ("def größe(Ω='ü'):\n    return Ω + '→🚀'", "ü→🚀"),
        ("def f():\r\n    return 'a'\r\n", "a"),
        ("async def g(): ...\ndef f():\n    return 1", 1),
        (
            "def f():\n    try:\n        1 / 0\n    except* ZeroDivisionError as group:\n        return len(group.exceptions)",
            None,
        ),
    ],
)
def test_names_defined_in_the_source_are_accepted(text: str, value: Any) -> None:
    if "except*" in text:
        with pytest.raises(ValueError, match="is not Python"):  # return in except*
            source_of(text)
        return
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("func", "words"),
    [
        ("def f(:", "is not Python"),
        ("def f():\n    return x\n    global x", "is not Python: name 'x' is used prior to global"),
        ("def f():\n    break", "is not Python: 'break' outside loop"),
        ("def f(a, a): ...", "is not Python: duplicate argument"),
        ("def f():\n    return '\0'", "is not Python"),
        ("def f():\n    return " + "(" * 500 + ")" * 500, "is not Python"),
        ("def f():\n    return " + "-" * 50000 + "1", "is not Python"),
        ("x = 1", "defines no function"),
        ("  def f(): ...", "is not Python"),
        ("class A:\n    def f(self): ...", "defines no function"),
        ("async def f(): ...", "f is async"),
        ("def f():\n    return '" + "x" * MAX_SOURCE_BYTES + "'", "more than 96 KiB of source; send a folder with code="),
        (lambda: 1, "is not a function defined with def"),
        (Holder().method, "is not a function defined with def"),
        (Holder, "is not a function defined with def"),
        (print, "is not a function defined with def"),
        (functools.partial(plain, 1), "is not a function defined with def"),
        (3, "expected a function or its source, got int"),
        (["x"], "expected a function or its source, got list"),
    ],
)
def test_anything_but_a_function_is_refused(func: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        source_of(func)
    with pytest.raises(InvalidSettings) as raised:
        train_request(func=func)
    assert raised.value.problems[0][0] == "func"


def test_a_bad_object_is_refused_without_repeating_it() -> None:
    for bad in ({"name": "f"}, {"name": "f", "source": ["a-value"]}, {"name": "f", "source": "x", "more": "a-value"}):
        with pytest.raises(InvalidSettings) as raised:
            train_request(func=bad)
        assert "a-value" not in str(raised.value)
