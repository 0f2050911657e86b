"""Random pipelines, and the values that plain Python gives to their tasks: an oracle for runs on this machine."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

COMPONENTS = """
from typing import List
from kfp import dsl

component = dsl.component(base_image="python:3.11", install_kfp_package=False)


@component
def text(tag: str, s: str, other: str = "default") -> str:
    return s + "/" + other


@component
def number(tag: str, n: int, other: int = 4) -> int:
    return n + other


@component
def real(tag: str, x: float) -> float:
    return x / 2


@component
def struct(tag: str, d: dict) -> dict:
    return {"in": d, "q": 'say "hi" \\\\'}


@component
def texts(tag: str, s: str) -> List[str]:
    return [s, s + '"', "python3"]


@component
def objects(tag: str, n: int) -> List[dict]:
    return [{"key": n, "word": "a b", "in ner": [n]}, {"key": n + 1, "word": '"', "in ner": []}]


@component
def gather(tag: str, l: list) -> int:
    return len(l)


@component
def large(tag: str) -> int:
    return 2**53 + 1
"""
FUNCTIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "text": lambda given: given["s"] + "/" + given.get("other", "default"),
    "number": lambda given: given["n"] + given.get("other", 4),
    "real": lambda given: given["x"] / 2,
    "struct": lambda given: {"in": given["d"], "q": 'say "hi" \\'},
    "texts": lambda given: [given["s"], given["s"] + '"', "python3"],
    "objects": lambda given: [
        {"key": given["n"], "word": "a b", "in ner": [given["n"]]},
        {"key": given["n"] + 1, "word": '"', "in ner": []},
    ],
    "gather": lambda given: len(given["l"]),
    "large": lambda _given: 2**53 + 1,
}
OUTPUT = {
    "text": "str",
    "number": "int",
    "real": "float",
    "struct": "dict",
    "texts": "texts",
    "objects": "objects",
    "gather": "int",
}
ODD_TEXTS = ["", "it's", 'a "b"', "back\\slash", "python3 -m x", "Größe ∑ 漢", "a, b: {c}", "line\nline", "null", "007", "true"]
PLAIN_TEXTS = ["", "plain", "a b", "Größe"]
PARAMETERS: dict[str, tuple[str, str, Any]] = {
    "p_text": ("str", "str", 'param "text" \\ python3.11'),
    "p_int": ("int", "int", 41),
    "p_float": ("float", "float", 0.25),
    "p_words": ("List[str]", "texts", ["x", 'y"', "python3"]),
    "p_ints": ("List[int]", "ints", [1, 20]),
    "p_objects": ("List[dict]", "objects", [{"key": 7, "word": "seven", "in ner": ["z"]}]),
}


@dataclass(frozen=True)
class Value:
    """An expression: how the pipeline's source has it, its type, and what it is in one execution."""

    source: str
    kind: str
    of: Callable[[dict[str, Any]], Any]


@dataclass
class Generator:
    """Writes the body of a pipeline line by line, and remembers what each task must get."""

    random: random.Random
    plain: bool = False
    """Only what kfp's own local runner gets right."""
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def value(self, kind: str, known: list[Value]) -> Value:
        """A value of a type: an output, an item, a parameter or a constant, or several of them in one text or object."""
        usable = [each for each in known if each.kind == kind]
        if usable and self.random.random() < 0.65:
            return self.random.choice(usable)
        if kind == "str":
            return self._text(known)
        if kind == "int":
            return constant(self.random.randint(-5, 1000), kind)
        if kind == "float":
            return constant(self.random.choice([0.5, -2.25, 3.0, 1e-7]), kind)
        if kind == "dict":
            return self._object(known)
        return constant(self.random.choices(ODD_TEXTS, k=2), kind)

    def _text(self, known: list[Value]) -> Value:
        word = self.random.choice(PLAIN_TEXTS if self.plain else ODD_TEXTS)
        kinds = ("str", "int") if self.plain else ("str", "int", "float", "dict")  # kfp replaces no typed list in a text
        parts = [each for each in known if each.kind in kinds]
        if not parts or self.random.random() < 0.5:
            return constant(word, "str")
        one, other = self.random.choice(parts), self.random.choice(parts)
        source = f"{word!r} + f'{{{one.source}}} + {{{other.source}}}'"
        return Value(source, "str", lambda run: word + written(one.of(run)) + " + " + written(other.of(run)))

    def _object(self, known: list[Value]) -> Value:
        kinds = ("str", "int", "float", "texts", "dict")
        inside = [each for each in known if each.kind in kinds]
        if not inside or self.plain:
            return constant({"a": [1, {"b": self.random.choice(PLAIN_TEXTS)}], "c d": 0.5}, "dict")
        one, other = self.random.choice(inside), self.random.choice(inside)
        return Value(
            f"{{'k': {one.source}, 'deep': [{{'x': {other.source}}}, 2, 'python3']}}",
            "dict",
            lambda run: {"k": written(one.of(run)), "deep": [{"x": written(other.of(run))}, 2, "python3"]},
        )

    def task(self, name: str, inputs: dict[str, Value], indent: str) -> tuple[Value, Task]:
        self.count += 1
        variable = f"t{self.count}"
        arguments = "".join(f", {key}={value.source}" for key, value in inputs.items())
        self.lines.append(f"{indent}{variable} = {name}(tag={variable!r}{arguments})")
        task = Task(variable, name, inputs)
        return Value(f"{variable}.output", OUTPUT.get(name, "large"), lambda run: run[variable]), task


@dataclass(frozen=True)
class Task:
    variable: str
    component: str
    inputs: dict[str, Value]

    def play(self, run: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
        given = {name: value.of(run) for name, value in self.inputs.items()}
        run[self.variable] = FUNCTIONS[self.component](given)
        yield {"tag": self.variable, **given}, run[self.variable]


@dataclass(frozen=True)
class Loop:
    item: str
    items: Value
    body: tuple[Any, ...]
    collected: tuple[str, ...]
    """Variables of tasks whose outputs are collected after it."""

    def play(self, run: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
        outputs: list[dict[str, Any]] = []
        for item in self.items.of(run):
            inner = {**run, self.item: item}
            for each in self.body:
                yield from each.play(inner)
            outputs.append(inner)
        for variable in self.collected:
            run[f"all {variable}"] = [each[variable] for each in outputs]


@dataclass(frozen=True)
class Branch:
    holds: Callable[[dict[str, Any]], bool]
    then: tuple[Any, ...]
    otherwise: tuple[Any, ...]

    def play(self, run: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
        for each in self.then if self.holds(run) else self.otherwise:
            yield from each.play(run)


def generated(seed: int, *, plain: bool = False) -> tuple[str, list[str], list[str]]:
    """Return the source of a pipeline, and the inputs and outputs of all its tasks as sorted lines of JSON."""
    generator = Generator(random.Random(seed), plain)
    chosen = {name: about for name, about in PARAMETERS.items() if not plain}
    known = [_parameter(name, kind, value) for name, (_, kind, value) in chosen.items()]
    body = _body(generator, known, "    ", depth=0)
    signature = ", ".join(f"{name}: {about[0]} = {about[2]!r}" for name, about in chosen.items())
    source = f"{COMPONENTS}\n\n@dsl.pipeline(name='generated')\ndef generated({signature}):\n" + "\n".join(generator.lines) + "\n"
    run: dict[str, Any] = {}
    played = [one for each in body for one in each.play(run)]
    return source, sorted(line(given) for given, _ in played), sorted(line(made) for _, made in played)


def line(value: Any) -> str:
    """A value, with its type."""
    return json.dumps(value, sort_keys=True)


def constant(value: Any, kind: str) -> Value:
    return Value(repr(value), kind, lambda _run: value)


def _parameter(name: str, kind: str, value: Any) -> Value:
    return Value(name, kind, lambda _run: value)


def written(value: Any) -> str:
    """A value inside of a text or an object."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.10f}".rstrip("0").rstrip(".")
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _body(generator: Generator, known: list[Value], indent: str, depth: int) -> list[Any]:
    known, found = list(known), []
    for _ in range(generator.random.randint(2, 4) if depth else 5):
        kind = generator.random.random()
        if kind < 0.25 and depth < 2 and not generator.plain:
            found.append(_loop(generator, known, indent, depth))
        elif kind < 0.4 and depth < 3:
            found.append(_branch(generator, known, indent, depth))
        else:
            output, task = _task(generator, known, indent)
            known.append(output)
            found.append(task)
    return found


def _task(generator: Generator, known: list[Value], indent: str) -> tuple[Value, Task]:
    names = ["text", "number", "real", "struct"] + ([] if generator.plain else ["texts", "objects", "large", "number"])
    name = generator.random.choice(names)
    value = generator.value
    inputs = {
        "text": lambda: {"s": value("str", known)},
        "number": lambda: {"n": value("int", known)},
        "real": lambda: {"x": value("float", known)},
        "struct": lambda: {"d": value("dict", known)},
        "texts": lambda: {"s": value("str", known)},
        "objects": lambda: {"n": value("int", known)},
        "large": dict,
    }[name]()
    if name in ("text", "number") and generator.random.random() < 0.4:
        inputs["other"] = value("str" if name == "text" else "int", known)
    output, task = generator.task(name, inputs, indent)
    return (Value(output.source, "int", output.of) if name == "large" else output), task


def _loop(generator: Generator, known: list[Value], indent: str, depth: int) -> Loop | Sequence:
    generator.count += 1
    item = f"item{generator.count}"
    lists = [each for each in known if each.kind in ("texts", "ints", "objects")]
    items = generator.random.choice([*lists, constant([3, 4], "ints"), constant([{"word": "w\\"}, {"word": "python3"}], "words")])
    parallelism = generator.random.choice(["", ", parallelism=1", ", parallelism=2"])
    generator.lines.append(f"{indent}with dsl.ParallelFor({items.source}{parallelism}) as {item}:")
    inner = [each for each in known if each.source != items.source]  # two loops over one list have one item to kfp
    if items.kind in ("objects", "words"):
        inner.append(Value(f"{item}.word", "str", lambda run: run[item]["word"]))
        inner.append(Value(item, "dict", lambda run: run[item]))
    if items.kind == "objects":
        inner.append(Value(f"{item}.key", "int", lambda run: run[item]["key"]))
    elif items.kind != "words":
        inner.append(Value(item, "str" if items.kind == "texts" else "int", lambda run: run[item]))
    body = _body(generator, inner, indent + "    ", depth + 1)
    made = [each.variable for each in body if isinstance(each, Task)][:1]
    loop = Loop(item, items, tuple(body), tuple(made))
    if made and depth == 0:
        collected = Value(f"dsl.Collected({made[0]}.output)", "list", lambda run: run[f"all {made[0]}"])
        output, task = generator.task("gather", {"l": collected}, indent)
        known.append(output)
        return Sequence((loop, task))
    return loop


@dataclass(frozen=True)
class Sequence:
    parts: tuple[Any, ...]

    def play(self, run: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
        for each in self.parts:
            yield from each.play(run)


def _branch(generator: Generator, known: list[Value], indent: str, depth: int) -> Any:
    # The field of an item is text to kfp, which would compare it as text.
    numbers = [each for each in known if each.kind == "int" and not each.source.endswith(".key")]
    if not numbers:
        return _task(generator, known, indent)[1]
    number, bound = generator.random.choice(numbers), generator.random.randint(-5, 50)
    generator.lines.append(f"{indent}with dsl.If({number.source} > {bound}):")
    then = _body(generator, known, indent + "    ", depth + 2)
    generator.lines.append(f"{indent}with dsl.Else():")
    otherwise = _body(generator, known, indent + "    ", depth + 2)
    return Branch(lambda run: number.of(run) > bound, tuple(then), tuple(otherwise))
