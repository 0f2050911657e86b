"""The types of values that only a run knows: parameters of a pipeline, outputs of its tasks, and items of its loops.

Kubeflow Pipelines writes such a value as text where it is part of an object or a list. It is marked with its type there, so that the
step gets an integer and not "4.0", and False and not "false", which is true. So are integers that do not fit into a double.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kfp.dsl import PipelineTask
from kfp.dsl.for_loop import LoopArgumentVariable, LoopParameterArgument
from kfp.dsl.pipeline_channel import PipelineArtifactChannel, PipelineChannel

from trainwright.components.training_task import as_training_task
from trainwright.components.uncached import UncachedComponent

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


class TypedComponent(UncachedComponent):
    """A component of a training, whose objects and lists keep the types of the pipeline parameters inside them."""

    def __call__(self, *args: Any, **kwargs: Any) -> PipelineTask:
        return as_training_task(super().__call__(*args, **{name: with_types(value) for name, value in kwargs.items()}))


def with_types(value: Any) -> Any:
    """Return an object or list in which values that only a run knows, and large integers, are text marked with their types.

    Any other value is returned unchanged.
    """
    return _with_types(value) if isinstance(value, dict | list | tuple) else value


def _with_types(value: Any) -> Any:
    from trainwright.jobs.request.typed_parameters import has_large_integer, is_marked, marked

    if isinstance(value, PipelineChannel):
        of_type = value_type(value)
        return value if of_type is None else marked(value, of_type)
    if isinstance(value, int) and has_large_integer(value):
        return marked(str(value), "int")
    if isinstance(value, Mapping) and not is_marked(value):
        return {key: _with_types(one) for key, one in value.items()}
    return [_with_types(one) for one in value] if isinstance(value, list | tuple) else value


def value_type(channel: PipelineChannel) -> ValueType | None:
    """Return the type of a value that only a run knows; None for an item of a loop over values of different or unknown types.

    Raises TypeError for an artifact.
    """
    if isinstance(channel, PipelineArtifactChannel):
        raise TypeError(f"{channel.full_name} is an artifact, which a training pod cannot read; pass its URI as text")
    if isinstance(channel, LoopArgumentVariable):
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
    if types == {"int", "float"}:
        return "float"
    return types.pop() if len(types) == 1 else None
