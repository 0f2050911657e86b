"""The outputs of a training function's component, from its return annotation."""

from __future__ import annotations

import ast
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from trainwright.components.train.component import train
from trainwright.jobs.code.argument_types import ArgumentType, type_of_annotation
from trainwright.jobs.code.function_arguments import FunctionSignature
from trainwright.jobs.request.typed_parameters import ValueType

SINGLE = "Output"
"""kfp's name of the output of a function that returns one value."""
_KINDS: dict[str, ValueType] = {"bool": "bool", "int": "int", "float": "float", "str": "str", "list": "list", "dict": "dict"}


def output_types(func: Callable[..., Any], signature: FunctionSignature) -> dict[str, ValueType]:
    """Return the outputs of a function with their types: the fields of a NamedTuple or TypedDict, else one for a single value.

    A function that returns an object has none: all its values are in the output `results`. Raises TypeError for a field with the
    name of an output of `train`, or of a type that an output cannot have.
    """
    fields = _fields_of(func)
    if fields is None:
        of_type = _KINDS.get(signature.returns.without_none.kind)
        return {} if of_type in (None, "dict") else {SINGLE: of_type}
    outputs = {}
    for name, annotation in fields.items():
        of_type = _KINDS.get(_type_of(annotation).without_none.kind)
        if name in train.component_spec.outputs:
            raise TypeError(f"{func.__name__}: the output {name!r} has the name of an output of train; rename it")
        if of_type is None:
            raise TypeError(f"{func.__name__}: the output {name!r} must be annotated as bool, int, float, str, list or dict")
        outputs[name] = of_type
    return outputs


def _fields_of(func: Callable[..., Any]) -> Mapping[str, Any] | None:
    """Return the annotations of the fields of what a function returns; None for anything without named fields."""
    func = inspect.unwrap(func)
    alone = types.SimpleNamespace(__annotations__={"return": func.__annotations__.get("return")})
    try:
        returns = typing.get_type_hints(alone, {**vars(typing), **func.__globals__})["return"]
    except Exception:  # a name that only the training pod has; the annotation is any code
        return None
    is_named_tuple = isinstance(returns, type) and issubclass(returns, tuple) and hasattr(returns, "_fields")
    if is_named_tuple or typing.is_typeddict(returns):
        fields: Mapping[str, Any] = returns.__annotations__
        return fields
    return None


def _type_of(annotation: Any) -> ArgumentType:
    """Return the type of a field, whose annotation may be a type, an object of `typing`, or text."""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    text = annotation.__name__ if isinstance(annotation, type) and not typing.get_args(annotation) else str(annotation)
    try:
        return type_of_annotation(ast.parse(text, mode="eval").body)
    except SyntaxError:
        return ArgumentType()
