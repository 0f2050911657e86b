"""A compiled pipeline: its name, its parameters and its text, whose digest names its version on a server. Pure.

What kfp's compiler accepts and gets wrong without a word is refused: a run would end well with other values.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.errors import BadPipeline
from trainwright.pipeline_runs.local_values import texts_in
from trainwright.pipeline_runs.parameters import ParameterSpec, parameter_specs
from trainwright.text.foreign_texts import one_line, printable
from trainwright.text.text_input import Unreadable
from trainwright.text.yaml_reader import read_yaml
from trainwright.text.yaml_writer import to_yaml_documents

_NEEDED = ("pipelineInfo", "root", "deploymentSpec", "schemaVersion")
_CHANNEL = "pipelinechannel--"
_NOT_REPLACED = re.compile(r"\{\{channel:task=[^;]*;name=(?P<name>[^;]*);type=")
_TEXT_ORDER = re.compile(r"inputs\.parameter_values\['(?P<name>[^']+)'\] [<>]=? '-?\d+(?:\.\d+)?'")


@dataclass(frozen=True)
class CompiledPipeline:
    """The documents of a compiled pipeline: its specification and, where it has Kubernetes settings, those of the platform."""

    documents: tuple[Obj, ...]
    header: str = ""
    """Comments at the top of the file: what kfp says of inputs and outputs."""

    @classmethod
    def parse(cls, text: str, source: str) -> CompiledPipeline:
        """Read the YAML of a compiler. Raises BadPipeline naming the source for anything that is not a pipeline."""
        try:
            documents = [document for document in read_yaml(text, source) if document is not None]
        except Unreadable as error:
            raise BadPipeline(str(error)) from None
        if not 1 <= len(documents) <= 2 or not all(isinstance(document, dict) for document in documents):
            raise BadPipeline(f"{source}: not a compiled pipeline: expected its specification, and at most one of the platform")
        if missing := [key for key in _NEEDED if not documents[0].get(key)]:
            raise BadPipeline(f"{source}: not a compiled pipeline: {', '.join(missing)} is missing")
        header = "".join(printable(line) for line in takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True)))
        compiled = cls(tuple(documents), header)
        try:
            _restore_integers(documents[0])
            _ = compiled.name, compiled.parameters
            list(compiled.tasks())
        except (AttributeError, KeyError, TypeError):  # text or lists where the format has objects
            raise BadPipeline(f"{source}: not a compiled pipeline: its specification is malformed") from None
        return compiled

    @property
    def name(self) -> str:
        return str(self.documents[0]["pipelineInfo"]["name"])

    @property
    def description(self) -> str:
        return str(self.documents[0]["pipelineInfo"].get("description", ""))

    @functools.cached_property
    def parameters(self) -> dict[str, ParameterSpec]:
        """The parameters of a run, by name."""
        return parameter_specs(self.documents[0]["root"].get("inputDefinitions", {}))

    @property
    def text(self) -> str:
        """The YAML. Unlike kfp's own, every text in it is one for readers of YAML 1.2, too: kfp leaves `2e-4` without quotes."""
        return self.header + to_yaml_documents(self.documents, sort_keys=True)

    @property
    def digest(self) -> str:
        """The SHA-256 of the text, in hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def submitted_spec(self) -> Obj:
        """What a run carries if it refers to no uploaded version."""
        if len(self.documents) == 1:
            return self.documents[0]
        return {"pipeline_spec": self.documents[0], "platform_spec": self.documents[1]}

    def tasks(self) -> Iterator[tuple[Obj, str, Obj]]:
        """Yield each task, at any depth, after the component that it is in and its name."""
        spec = self.documents[0]
        for component in (spec["root"], *spec.get("components", {}).values()):
            for name, task in component.get("dag", {}).get("tasks", {}).items():
                yield component, name, task

    def component_of(self, task: Obj) -> Obj:
        """Return the component of a task; empty if it is missing."""
        found: Obj = self.documents[0].get("components", {}).get(task["componentRef"]["name"], {})
        return found

    def executors(self) -> Iterator[tuple[str, Obj]]:
        """Yield the container of each executor, with its name; others have none."""
        for name, executor in self.documents[0]["deploymentSpec"].get("executors", {}).items():
            yield name, executor.get("container", {})

    @functools.cached_property
    def groups(self) -> frozenset[str]:
        """The names of what consists of tasks: nested pipelines, conditions, loops and exit handlers."""
        return frozenset(name for _, name, task in self.tasks() if "dag" in self.component_of(task))

    def without_cache(self) -> CompiledPipeline:
        """Return the pipeline with caching off for every task, at any depth: kfp itself only changes the outermost."""
        found = replace(self, documents=copy.deepcopy(self.documents))
        for _, _, task in found.tasks():
            task["cachingOptions"] = {"enableCache": False}
        return found


def _restore_integers(spec: Obj) -> None:
    """Write defaults of integers as integers: kfp's compiler writes 3.0, which forms then show."""
    for component in (spec["root"], *spec.get("components", {}).values()):
        for declared in component.get("inputDefinitions", {}).get("parameters", {}).values():
            default = declared.get("defaultValue")
            if declared["parameterType"] == "NUMBER_INTEGER" and isinstance(default, float) and default.is_integer():
                declared["defaultValue"] = int(default)


def check_compiled(pipeline: CompiledPipeline) -> None:
    """Refuse a pipeline whose values are confused. Raises BadPipeline naming the tasks, and what to do.

    * `item.name` in a loop is not a field of the item: it is an attribute of kfp's placeholder, whose own name is then passed.
    * Two loops over one list, one inside the other, have the same item.
    * A list with a type, as List[str], is not replaced inside a text, nor is any value in a variable of a task.
    * A backslash in the text of a condition is an escape to a server.
    * The field of an item is text, and `item.epochs > 16` is true for 7.
    """
    root = pipeline.documents[0]["root"]
    problems = {*_names_of_items(pipeline), *_loops_over_one_list(pipeline, root, frozenset()), *_not_replaced(pipeline)}
    for _, name, task in pipeline.tasks():
        condition = task.get("triggerPolicy", {}).get("condition", "")
        if "\\" in condition:
            problems.add(
                f"{one_line(name)}: a server reads a backslash in the text of a condition as an escape; compare in a task"
            )
        if found := _TEXT_ORDER.search(condition):
            problems.add(
                f"{one_line(name)}: {_shown(found['name'])} is text to kfp, and not compared as a number; say what the list has, "
                "as in List[int], or compare it in a task that returns a bool"
            )
    if problems:
        raise BadPipeline("; ".join(sorted(problems)))


def _names_of_items(pipeline: CompiledPipeline) -> Iterator[str]:
    items = {task["parameterIterator"]["itemInput"] for _, _, task in pipeline.tasks() if "parameterIterator" in task}
    names = [re.compile(rf"(?<![\w-]){re.escape(item.removeprefix(_CHANNEL))}(?![\w-])") for item in items]
    for _, name, task in pipeline.tasks():
        for field, given in task.get("inputs", {}).get("parameters", {}).items():
            texts = list(texts_in(given.get("runtimeValue", {}).get("constant")))
            if any(item.search(text) for item in names for text in texts if not _NOT_REPLACED.search(text)):
                yield (
                    f"{one_line(name)}: the input {one_line(field)!r} is the name of a loop's item: to kfp `item.name` is that, and "
                    "not the field 'name'; give the field another name"
                )


def _loops_over_one_list(pipeline: CompiledPipeline, component: Obj, items: frozenset[str]) -> Iterator[str]:
    for name, task in component.get("dag", {}).get("tasks", {}).items():
        item = task.get("parameterIterator", {}).get("itemInput")
        if item in items:
            yield f"{one_line(name)}: it is in a loop over the same list, and both have the inner item; return the list from a task"
        yield from _loops_over_one_list(pipeline, pipeline.component_of(task), items | {item} if item else items)


def _not_replaced(pipeline: CompiledPipeline) -> Iterator[str]:
    for _, name, task in pipeline.tasks():
        for field, given in task.get("inputs", {}).get("parameters", {}).items():
            for text in texts_in(given.get("runtimeValue", {}).get("constant")):
                if found := _NOT_REPLACED.search(text):
                    yield (
                        f"{one_line(name)}: kfp does not put {_shown(found['name'])} into the text of the input {one_line(field)!r}; "
                        "pass it as a separate input, or declare it as list"
                    )
    for name, container in pipeline.executors():
        for variable in container.get("env", []):
            if found := _NOT_REPLACED.search(str(variable.get("value", ""))):
                yield (
                    f"{one_line(name.removeprefix('exec-'))}: kfp does not put {_shown(found['name'])} into the variable "
                    f"{one_line(str(variable.get('name')))}; pass it as an input"
                )


def _shown(name: str) -> str:
    return repr(one_line(name.removeprefix(_CHANNEL)).replace("-loop-item-subvar-", "."))
