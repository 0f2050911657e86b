"""Refuses what kfp's compiler accepts and gets wrong without a word, so that a run would end well with other values. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.errors import BadPipeline
from trainwright.pipeline_runs.local_values import texts_in
from trainwright.text.foreign_texts import one_line

_CHANNEL = "pipelinechannel--"
_NOT_REPLACED = re.compile(r"\{\{channel:task=[^;]*;name=(?P<name>[^;]*);type=")
_TEXT_ORDER = re.compile(r"inputs\.parameter_values\['(?P<name>[^']+)'\] [<>]=? '-?\d+(?:\.\d+)?'")


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
