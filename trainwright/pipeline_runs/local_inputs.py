"""The inputs of a task in a run on this machine, from the outputs and groups to which the compiled pipeline refers.

As `driver/resolve.go` of Kubeflow Pipelines 2.17, but that text with quotes fits into objects, and that what kfp's compiler forgets
to hand down to a group is found in the groups around it. Both are warned of, since they fail on a server. Conditions are in the
part of CEL that kfp's compiler writes: comparisons, of which some are negated, joined by `&&`, as in `inputs.parameter_values['x']
> 0.5 && !(int(inputs.parameter_values['n']) == 1)`.
"""

from __future__ import annotations

import enum
import math
import operator
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.local_values import (
    REFERENCE,
    BadValue,
    Values,
    breaks_text,
    field_of,
    filled,
    items_of,
    not_carried,
    restored,
    selected,
    texts_in,
    typed,
)
from trainwright.text.foreign_texts import one_line

GROUP = re.compile(r"(condition|condition-branches|exit-handler|for-loop)-\d+")
"""Names of the groups that kfp's compiler makes of conditions, exit handlers and loops."""
_CHANNEL, _FIELD = "pipelinechannel--", "-subvar-"
_OPERAND = r"(?:(?:int|double)\()?(?:inputs\.parameter_values\['[^']+'\]|true|false|-?[\d.]+(?:e[+-]?\d+)?|'[^']*')\)?"
_COMPARISON = re.compile(rf"(?P<not>!\()?(?P<left>{_OPERAND}) (?P<sign>==|!=|<=?|>=?) (?P<right>{_OPERAND})(?(not)\))(?: && |$)")
_READ = re.compile(
    r"(?:(?P<cast>int|double)\()?(?:inputs\.parameter_values\['(?P<input>[^']+)'\]|'(?P<text>.*)'|(?P<literal>[^)]+))\)?", re.S
)
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class State(enum.StrEnum):
    """How a task has ended."""

    succeeded = "SUCCEEDED"
    failed = "FAILED"
    skipped = "SKIPPED"
    """Its condition does not hold."""
    omitted = "OMITTED"
    """Another task has failed."""


@dataclass
class Scope:
    """One execution of a group of tasks: the pipeline, a nested pipeline, an iteration of a loop, the branch of a condition."""

    component: Obj
    inputs: Values
    place: tuple[str, ...]
    """Names of the nested pipelines and iterations around it."""
    halted: threading.Event
    """Set by the first failure."""
    enclosing: Scope | None = None
    """The scope of which this is a group; a nested pipeline sees nothing of the pipeline around it."""
    outputs: dict[str, Values] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)

    def own_outputs(self) -> Values:
        """Return the outputs of the group; those of a task that did not run are missing."""
        declared, found = self.component["dag"].get("outputs", {}), Values()
        for name, source in declared.get("parameters", {}).items():
            one = source.get("valueFromParameter")
            for selector in [one] if one else source["valueFromOneof"]["parameterSelectors"]:
                self._select(found, name, selector["producerSubtask"], selector["outputParameterKey"])
        for name, source in declared.get("artifacts", {}).items():
            for selector in source["artifactSelectors"]:
                self._select(found, name, selector["producerSubtask"], selector["outputArtifactKey"])
        return found

    def _select(self, found: Values, name: str, task: str, output: str) -> None:
        if output in self.outputs.get(task, {}):
            found[name] = self.outputs[task][output]


@dataclass(frozen=True)
class TaskInputs:
    """A task whose inputs are looked up. `label` is its place in the run, `warn` takes what would be different on a server."""

    task: Obj
    component: Obj
    scope: Scope
    label: str
    of_run: Mapping[str, str]
    """Values of the run, as `{{$.pipeline_job_uuid}}`."""
    warn: Callable[[str], None]

    @property
    def _given(self) -> dict[str, Obj]:
        found: dict[str, Obj] = self.task.get("inputs", {}).get("parameters", {})
        return found

    def values(self) -> Values:
        """Return all inputs: for a program as the types that it declares, for a group as they are.

        Raises BadValue for one that is missing or of another type.
        """
        declared, is_group = self.component.get("inputDefinitions", {}), "dag" in self.component
        found: Values = {}
        for name, given in self._given.items():
            about = declared.get("parameters", {}).get(name, {})
            if not (about or is_group):
                continue  # another input refers to it
            value = self._parameter(name, given, is_optional=is_group or bool(about.get("isOptional")))
            if value is None:  # the default is used
                continue
            found[name] = value if is_group else self._typed(name, given, value, about["parameterType"])
        for name, given in self.task.get("inputs", {}).get("artifacts", {}).items():
            source = given.get("taskOutputArtifact") or {"outputArtifactKey": given.get("componentInputArtifact")}
            artifacts = self._source(source.get("producerTask"), source["outputArtifactKey"])
            if artifacts is not None:
                found[name] = artifacts
            elif not declared.get("artifacts", {}).get(name, {}).get("isOptional"):
                raise BadValue(f"the input {name!r} was not made")
        return found

    def condition_holds(self, condition: str) -> bool:
        """Whether the condition of a group holds. Raises BadValue for a value that is null or of another type."""
        declared = self.component.get("inputDefinitions", {}).get("parameters", {})

        def value_of(name: str) -> Any:
            value = self._parameter(name, self._given.get(name, {"componentInputParameter": name}), is_optional=True)
            return None if value is None else typed(value, declared.get(name, {}).get("parameterType", ""))

        return is_met(condition, value_of)

    def name_of(self, given: Obj) -> str:
        """Return the name of an object to which a Kubernetes setting of the task refers. Raises BadValue without one."""
        if (name := given.get("componentInputParameter")) and _CHANNEL + name in self.scope.inputs:
            given = {"componentInputParameter": _CHANNEL + name}  # settings have the name of the pipeline's parameter
        return str(self._parameter("pvc_name", given, is_optional=False))

    def items(self, iterator: Obj, inputs: Values) -> list[Any]:
        """Return the items of a loop with these inputs. Raises BadValue for what is not a list."""
        source = iterator["items"]
        if "raw" in source:
            return items_of(source["raw"])
        if "inputArtifact" in source:
            return [[each] for each in inputs.get(source["inputArtifact"], [])]
        name = source["inputParameter"]
        value = inputs[name] if name in inputs else self._of_scope(name)
        if value is None:
            raise BadValue(f"{name.removeprefix(_CHANNEL)} has no items")
        return items_of(value)

    def filled(self, constant: Any, place: str) -> Any:
        """Return a constant with the values to which its texts refer. Raises BadValue for one that is missing."""

        def value_of(name: str) -> Any:
            value = self._parameter(name, self._given.get(name, {"componentInputParameter": name}), is_optional=False)
            if problem := not_carried(value):
                self.warn(f"{place}: it has {problem}")
            if breaks_text(value):
                self.warn(f"{place}: a server cannot put a value with quotes or backslashes there; pass it as a separate input")
            return value

        for found in (found for text in texts_in(constant) for found in REFERENCE.finditer(text)):
            if found[0] == "{{$.workspace_path}}":
                raise BadValue(f"{place}: a run on this machine has no workspace of Kubeflow Pipelines")
            if not found["input"] and found[0] != constant:
                self.warn(f"{place}: a server does not replace {found[0]} inside a longer text or an object")
        name = self.task.get("taskInfo", {}).get("name", "")
        of_task = {"{{$.pipeline_task_name}}": name, "{{$.pipeline_task_uuid}}": str(uuid.uuid4())}
        return filled(constant, value_of, {**self.of_run, **of_task})

    def _parameter(self, name: str, given: Obj, *, is_optional: bool) -> Any:
        """Return the value of a parameter; None for an optional one without a value."""
        if "runtimeValue" in given:
            constant = restored(given["runtimeValue"]["constant"])
            whole = REFERENCE.fullmatch(constant) if isinstance(constant, str) else None
            if whole and whole["input"] in self._given:  # nothing but a reference: it is the value, on a server as well
                return self._parameter(name, self._given[whole["input"]], is_optional=is_optional)
            return self.filled(constant, f"{self.label}: {name}")
        if "taskFinalStatus" in given:
            producer = given["taskFinalStatus"]["producerTask"]
            has_succeeded = self.scope.states.get(producer) is State.succeeded
            return {
                "state": "SUCCEEDED" if has_succeeded else "FAILED",
                "pipelineJobResourceName": self.of_run["{{$.pipeline_job_resource_name}}"],
                "pipelineTaskName": producer,
                "error": {} if has_succeeded else {"code": 1, "message": f"{producer} failed"},
            }
        source = given.get("taskOutputParameter") or {"outputParameterKey": given["componentInputParameter"]}
        value = self._source(source.get("producerTask"), source["outputParameterKey"])
        if value is None and not is_optional:
            task = f"{source['producerTask']}." if "producerTask" in source else ""
            raise BadValue(f"the input {name!r}: {task}{source['outputParameterKey'].removeprefix(_CHANNEL)} has no value")
        selector = given.get("parameterExpressionSelector")
        return selected(value, selector) if selector and value is not None else value

    def _typed(self, name: str, given: Obj, value: Any, of_type: str) -> Any:
        source = given.get("componentInputParameter", "")
        declared = self.scope.component.get("inputDefinitions", {}).get("parameters", {}).get(source, {}).get("parameterType")
        if declared == "STRING" and of_type != "STRING" and "parameterExpressionSelector" not in given:
            self.warn(
                f"{self.label}: {name}: to a server an item of this loop is text, and not what the task declares, so the task fails "
                "there; say what the list has, as in List[int] or List[dict]"
            )
        try:
            value = typed(value, of_type)
        except BadValue as error:
            raise BadValue(f"the input {name!r}: {error}") from None
        if problem := not_carried(value):
            self.warn(f"{self.label}: the input {name!r} has {problem}")
        return value

    def _source(self, producer: str | None, name: str) -> Any:
        return self._of_scope(name) if producer is None else self.scope.outputs.get(producer, {}).get(name)

    def _of_scope(self, name: str) -> Any:
        """Return an input of the group that the task is in, or a value of the groups around it; None if there is none.

        kfp's compiler forgets to hand some values down; `run_checks.forgotten_values` warns of them.
        """
        if name in self.scope.inputs:
            return self.scope.inputs[name]
        for scope in _and_enclosing(self.scope):
            outputs = {f"{_CHANNEL}{task}-{output}": made[output] for task, made in scope.outputs.items() for output in made}
            known = {**outputs, **scope.inputs}
            item, is_field, key = name.partition(_FIELD)
            for found in (name, name.removeprefix(_CHANNEL), item if is_field else ""):
                if found in known:
                    return field_of(known[found], key) if found == item and is_field else known[found]
        return None


def with_defaults(component: Obj, values: Values) -> Values:
    """Return the inputs of a group, with the defaults of those that have no value."""
    declared = component.get("inputDefinitions", {}).get("parameters", {})
    return {**{name: restored(about["defaultValue"]) for name, about in declared.items() if "defaultValue" in about}, **values}


def upstream_of(name: str, group: Obj, components: Mapping[str, Obj]) -> set[str]:
    """Return the names of the tasks that a task of a group waits for, also for values that kfp's compiler forgets to hand down."""
    task = group["dag"]["tasks"][name]
    sources = [given for kind in ("parameters", "artifacts") for given in task.get("inputs", {}).get(kind, {}).values()]
    found = {
        each["producerTask"] for given in sources for each in given.values() if isinstance(each, dict) and "producerTask" in each
    }
    made: dict[str, str] = {}
    for other, about in group["dag"]["tasks"].items() if GROUP.fullmatch(name) else ():
        outputs = components[about["componentRef"]["name"]].get("outputDefinitions", {})
        made |= {f"{_CHANNEL}{other}-{output}": other for kind in ("parameters", "artifacts") for output in outputs.get(kind, {})}
    forgotten = _forgotten(components[task["componentRef"]["name"]], components) if made else set()
    return found.union(task.get("dependentTasks", []), (made[value] for value in forgotten & made.keys()))


def _forgotten(group: Obj, components: Mapping[str, Obj]) -> set[str]:
    """Return the values to which the tasks of a group refer, at any depth, but which the group does not get."""
    found: set[str] = set()
    for name, task in group["dag"]["tasks"].items():
        inputs = task.get("inputs", {})
        given = [*inputs.get("parameters", {}).values(), *inputs.get("artifacts", {}).values()]
        found |= {
            str(each[key]) for each in given for key in ("componentInputParameter", "componentInputArtifact") if key in each
        }
        if GROUP.fullmatch(name):
            found |= _forgotten(components[task["componentRef"]["name"]], components)
    return found.difference(group.get("inputDefinitions", {}).get("parameters", {}))


def collected(component: Obj, iterations: list[Values], components: Mapping[str, Obj]) -> Values:
    """Return the outputs of a loop: one list over all iterations, also over those of loops in loops, as a server makes it."""
    declared, found = component["dag"].get("outputs", {}), Values()
    for name in (*declared.get("artifacts", {}), *declared.get("parameters", {})):
        values = [each.get(name) for each in iterations]
        is_list = name in declared.get("artifacts", {}) or _is_collected(component, name, components)
        found[name] = [value for each in values for value in each or []] if is_list else values
    return found


def _is_collected(component: Obj, output: str, components: Mapping[str, Obj]) -> bool:
    """Whether a parameter of a group is itself the output of a loop."""
    source = component["dag"].get("outputs", {}).get("parameters", {}).get(output, {}).get("valueFromParameter")
    if source is None:
        return False
    task = component["dag"]["tasks"][source["producerSubtask"]]
    inner = components[task["componentRef"]["name"]]
    return "parameterIterator" in task or ("dag" in inner and _is_collected(inner, source["outputParameterKey"], components))


def _and_enclosing(scope: Scope | None) -> Iterator[Scope]:
    while scope is not None:
        yield scope
        scope = scope.enclosing


def is_met(condition: str, value_of: Callable[[str], Any]) -> bool:
    """Whether a condition holds.

    `value_of` returns the value of an input by name, as the type that its group declares. Raises BadValue if a value is missing or
    null, has another type than the one that it is compared with, or if the condition cannot be read: a server fails then, too.
    """
    shown, at, found = repr(one_line(condition)[:200]), 0, True
    while at < len(condition):
        if (comparison := _COMPARISON.match(condition, at)) is None:
            raise BadValue(f"the condition {shown} cannot be read; a server refuses quotes in its texts, too")
        left, right = (_operand(comparison[side], value_of, shown) for side in ("left", "right"))
        if {type(left), type(right)} & {str, bool} and type(left) is not type(right):
            raise BadValue(f"the condition {shown} compares {left!r} with {right!r}")
        # All comparisons are read, so that a missing value is found in each of them.
        found = (_SIGNS[comparison["sign"]](left, right) is not bool(comparison["not"])) and found
        at = comparison.end()
    return found


def _operand(text: str, value_of: Callable[[str], Any], shown: str) -> Any:
    read = _READ.fullmatch(text)
    assert read is not None, "part of a comparison"
    value: Any
    if read["input"] is not None:
        value = value_of(read["input"])
        if isinstance(value, float) and not math.isfinite(value):
            raise BadValue(f"the condition {shown} compares {read['input']}, which is {value}")
        if value is None or isinstance(value, list | dict):
            raise BadValue(
                f"the condition {shown} has nothing to compare: {read['input']} is {'null' if value is None else 'not one value'}"
            )
    elif read["text"] is not None:
        value = read["text"]
    else:
        value = {"true": True, "false": False}.get(read["literal"])
        if value is None:
            value = float(read["literal"]) if re.search(r"[.e]", read["literal"]) else int(read["literal"])
    if read["cast"] is None:
        return value
    try:
        return int(value) if read["cast"] == "int" else float(value)
    except (ValueError, OverflowError):
        raise BadValue(f"the condition {shown} needs a number, got {one_line(str(value))[:80]!r}") from None
