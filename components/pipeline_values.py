"""The types of values that only a run knows: parameters of a pipeline, outputs of its tasks, and items of its loops.

Kubeflow Pipelines writes such a value as text where it is part of an object or a list. It is marked with its type there, so that the
step gets an integer and not "4.0", and False and not "false", which is true. So are integers that do not fit into a double, and texts
with `$$`, which Kubernetes makes `$`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kfp.dsl.for_loop import LoopArgumentVariable, LoopParameterArgument
from kfp.dsl.pipeline_channel import PipelineArtifactChannel, PipelineChannel

if TYPE_CHECKING:
    from trainwright.jobs.request.typed_parameters import ValueType

_OF_CHANNELS: dict[str, ValueType] = {
    "int": "int",
    "integer": "int",
    "float": "float",
    "double": "float",
    "bool": "bool",
    "boolean": "bool",
    "str": "str",
    "string": "str",
    "text": "str",
    "list": "list",
    "jsonarray": "list",
    "dict": "dict",
    "jsonobject": "dict",
}
_OF_ITEMS: dict[type, ValueType] = {bool: "bool", int: "int", float: "float", str: "str", list: "list", dict: "dict"}


def with_types(value: Any, path: str) -> Any:
    """Return an object or list in which values that only a run knows, and those that a server would change, are text marked with their
    types.

    Any other value is returned unchanged.
    Raises TypeError naming the path for a list or an object that only a run knows: a server puts in its JSON as a text, so that the
    quotes in it end the step before its program begins.
    """
    return _with_types(value, path) if isinstance(value, dict | list | tuple) else value


def _with_types(value: Any, path: str) -> Any:
    from trainwright.jobs.request.typed_parameters import is_marked, marked, with_changing_marked

    if isinstance(value, PipelineChannel):
        of_type = value_type(value)
        if of_type in ("list", "dict"):
            raise TypeError(
                f"{path}: {value.full_name!r} is a {of_type}, which a server of Kubeflow Pipelines cannot put into an object or a "
                "list; make the whole object one parameter of the pipeline, or one output of a task"
            )
        return value if of_type is None else marked(value, of_type)
    if isinstance(value, Mapping) and not is_marked(value):
        return {key: _with_types(one, f"{path}.{key}") for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_types(one, f"{path}[{at}]") for at, one in enumerate(value)]
    if isinstance(value, str) and "{{" in value:  # a template: a run puts values in
        return value
    return with_changing_marked(value)


def value_type(channel: PipelineChannel) -> ValueType | None:
    """Return the type of a value that only a run knows; None for an item of a loop over values of different or unknown types.

    Raises TypeError for an artifact.
    """
    if isinstance(channel, PipelineArtifactChannel):
        raise TypeError(f"{channel.full_name} is an artifact, which a training pod cannot read; pass its URI as text")
    if isinstance(channel, LoopArgumentVariable):  # one field of each entry of a loop
        items = channel.loop_argument.items_or_pipeline_channel
        entries = [item.get(channel.subvar_name) for item in items] if isinstance(items, list) else []
        return _common_type(entries)
    if isinstance(channel, LoopParameterArgument):
        items = channel.items_or_pipeline_channel
        if isinstance(items, list):
            return _common_type(items)
        if channel.channel_type == "String":  # kfp's word for unknown, too
            return None
    return declared_type(channel)


def declared_type(channel: PipelineChannel) -> ValueType | None:
    """Return the type that kfp gives to a value: for an item of a loop, that of the first item."""
    return _OF_CHANNELS.get(str(channel.channel_type).partition("[")[0].rpartition(".")[2].lower())


def type_of_item(value: Any) -> ValueType | None:
    """Return the type of a value that is known; None for types that JSON does not have."""
    return _OF_ITEMS.get(type(value))


def _common_type(items: list[Any]) -> ValueType | None:
    types = {type_of_item(item) for item in items}
    if types == {"int", "float"}:  # an integer is a number, too
        return "float"
    return types.pop() if len(types) == 1 else None
