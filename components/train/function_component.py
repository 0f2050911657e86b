"""The component of a training function, which runs in a TrainJob on any number of nodes.

Its inputs are the function's arguments, with their types, and parameters of `train`; its outputs are those of `train` and the values
that the function returns. Its step is that of `train`, with a program as one more argument of the command: the source of the function,
and which inputs are its arguments. See `trainwright.steps.training.function_step`.
"""

from __future__ import annotations

import ast
import copy
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kfp import dsl
from kfp.dsl import InputPath, OutputPath, PipelineTask, pipeline_channel
from kfp.dsl.structures import ComponentSpec, InputSpec, OutputSpec
from kfp.dsl.types.type_annotations import is_Input_Output_artifact_annotation

from trainwright.components.pipeline_values import declared_type, type_of_item, value_type, with_types
from trainwright.components.step_component import StepComponent, check_groups, is_of_run, path_in_group, without_descriptions
from trainwright.components.train.component import train
from trainwright.jobs.code.argument_types import ArgumentType, convert, type_of_annotation
from trainwright.jobs.code.function_arguments import FunctionParameter, FunctionSignature, check_names, signature_of
from trainwright.jobs.code.function_source import source_of
from trainwright.jobs.credentials.secret_detection import reject_known_literals
from trainwright.jobs.request.invalid_settings import within
from trainwright.jobs.request.setting import settings_of
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.typed_parameters import ValueType, has_doubled_dollar, has_large_integer
from trainwright.text.suggest import suggest

_OTHER_PROGRAMS = {"func", "builtin", "settings", "command", "args", "code", "manifest"}
_OF_TRAIN: Mapping[str, InputSpec] = {
    name: spec for name, spec in train.component_spec.inputs.items() if name not in _OTHER_PROGRAMS and name != "task_config"
}
"""The parameters of `train` that a function's component has as well: all but those of other programs."""
_MAKE_WAY = {"dataset", "model", *(name for name, one in settings_of(TrainRequest).items() if one.of is not None)}
"""Artifacts and groups of `train`: an argument of such a name replaces the parameter."""
_OF_STEP = re.compile(r"\b(?:Input|Output)(?:Path)?\s*[\[(]")
_KFP_TYPES: dict[ValueType, str] = {
    "bool": "Boolean",
    "int": "Integer",
    "float": "Float",
    "str": "String",
    "list": "List",
    "dict": "Dict",
}
_KINDS: dict[str, ValueType] = {of_type: of_type for of_type in _KFP_TYPES}
_OF_INPUTS: dict[str, ValueType] = {**_KINDS, "datetime": "str", "date": "str", "timedelta": "float"}
"""Of an argument, which the training pod gets as its annotation says; what a function returns stays as it is in JSON."""
_GROUPS = frozenset(name for name, one in settings_of(TrainRequest).items() if one.of is not None)
SINGLE = "Output"
"""kfp's name of the output of a function that returns one value."""


class TrainFunction(StepComponent):
    """The component of a training function: `name`, `component_spec` and `python_func` are those of any component."""

    def __init__(self, func: Callable[..., Any], settings: Mapping[str, Any]):
        source = source_of(func)
        if source is None:
            raise ValueError("train_function decorates a function")
        reject_known_literals({"func": source.source, **settings})
        self._source, self._signature = source, signature_of(source)
        self._settings = {name: value for name, value in settings.items() if value is not None}
        self._arguments = self._settings.pop("func_args", {})
        self._of_train = {
            name: replace(spec, default=with_types(self._settings.get(name, spec.default), name))
            for name, spec in _OF_TRAIN.items()
            if name not in _MAKE_WAY or name not in self._signature.parameters
        }
        _refuse_artifacts(func)
        self._check_settings()
        self._outputs = output_types(func, self._signature)
        self.__name__, self.__doc__ = func.__name__, func.__doc__
        super().__init__(self._spec(self._inputs_alone(), self._arguments), func)

    def __call__(self, *args: Any, **kwargs: Any) -> PipelineTask:
        """Return the task of a pipeline. Raises TypeError for unknown, missing and unfit arguments, LiteralSecret for a credential."""
        if args:
            raise TypeError(f"{self.name}() takes keyword arguments only, got {len(args)} positional")
        reject_known_literals(kwargs)  # constants among the arguments are part of the program
        given = {**{name: value for name, value in self._settings.items() if name in self._of_train}, **kwargs}
        of_both = _GROUPS & kwargs.keys() & self._settings.keys() & self._of_train.keys()
        given |= {name: self._with_group(name, kwargs[name]) for name in of_both}
        if not (given.get("run") or given.get("run_id")):
            given["run_id"] = dsl.PIPELINE_JOB_ID_PLACEHOLDER
        named = {name: given.pop(name) for name in [*given] if name not in self._of_train}
        arguments = self._with_func_args(named, given)
        if arguments is not None:
            self._check_arguments(arguments)
        with within(f"{self.name}()", ": "):
            check_groups(TrainRequest, given)
        return self._task(arguments or {}, given)

    def _with_group(self, name: str, given: Any) -> Any:
        """Return a group of settings that the decorator and the call set: settings of the call replace those of the same names."""
        own = self._settings[name]
        if not isinstance(own, Mapping) or not isinstance(given, Mapping):
            raise TypeError(f"{self.name}(): {name}: the decorator sets it too; set both as objects, or set it in one place")
        return {**own, **given}

    def _with_func_args(self, arguments: dict[str, Any], given: dict[str, Any]) -> dict[str, Any] | None:
        """Return all arguments of the function by name; None if `func_args` is known at run time only, and stays in `given`."""
        func_args = given.pop("func_args", {})
        if isinstance(func_args, Mapping):
            if twice := sorted(func_args.keys() & arguments.keys()):
                raise TypeError(f"{self.name}(): {', '.join(twice)} is given twice, in func_args too")
            return {**self._arguments, **func_args, **arguments}
        if arguments or self._arguments:
            names = ", ".join(sorted({*arguments, *self._arguments}))
            raise TypeError(f"{self.name}(): func_args is a pipeline parameter, so that {names} cannot be set beside it")
        given["func_args"] = func_args
        return None

    def _check_settings(self) -> None:
        if unknown := sorted(self._settings.keys() - _OF_TRAIN.keys()):
            path = path_in_group(TrainRequest, unknown[0])
            about = f"it is {path}" if path else suggest(unknown[0], _OF_TRAIN)
            raise TypeError(f"train_function: {unknown[0]!r} is no setting of a function ({about})")
        if artifact := next((name for name in ("dataset", "model") if name in self._settings), ""):
            raise TypeError(
                f"train_function: {artifact} is given where the component is called: {self._signature.name}({artifact}=...)"
            )
        with within(f"train_function: {self._signature.name}", ": "):
            check_groups(TrainRequest, self._settings)
        if not isinstance(self._arguments, Mapping):
            raise TypeError("train_function: func_args must be an object")
        self._refuse_taken({**self._signature.parameters, **self._arguments})
        if SINGLE in self._signature.parameters:
            raise TypeError(f"{self._signature.name}: {SINGLE!r} cannot be the name of an input; rename the argument")
        unknown_arguments = self._arguments.keys() - self._signature.parameters.keys()
        if unknown_arguments and not self._signature.takes_others:
            self._check_arguments({**dict.fromkeys(self._signature.parameters), **self._arguments}, names_only=True)

    def _refuse_taken(self, arguments: Mapping[str, Any]) -> None:
        taken = {*self._of_train, "metrics", "loss_curve", "task_config"}
        if names := [name for name in arguments if name in taken]:
            raise TypeError(
                f"{self._signature.name}: the argument {names[0]!r} has the name of a parameter of train; rename the argument"
            )

    def _check_arguments(self, arguments: Mapping[str, Any], *, names_only: bool = False) -> None:
        try:
            check_names(self._signature, arguments)
        except ValueError as error:
            near = {name for name in arguments if name not in self._signature.parameters}
            paths = [f"; {name} is {path}" for name in sorted(near) if (path := path_in_group(TrainRequest, name))]
            hint = next((suggest(name, self._of_train) for name in sorted(near)), "")
            hint = f"; {hint}" if hint.startswith("did you mean") and not names_only else ""
            hint = paths[0] if paths else hint
            raise TypeError(f"{error}{hint}") from None
        self._refuse_taken(arguments)  # a function with ** takes any name

    def _inputs_alone(self) -> dict[str, InputSpec]:
        """Return the inputs of the component without a call. An argument without a type that an input can have is none of them."""
        found = {}
        for name, parameter in self._signature.parameters.items():
            of_type, value = _input_type(parameter), self._arguments.get(name)
            is_fixed = name in self._arguments and (value is None or _changes(value))
            if of_type is not None and not is_fixed:
                default = _fitting(value, parameter) if value is not None else _default_of(parameter, of_type)
                is_required = parameter.is_required and name not in self._arguments
                found[name] = InputSpec(_KFP_TYPES[of_type], default=default, optional=not is_required)
        return found

    def _task(self, arguments: Mapping[str, Any], given: dict[str, Any]) -> PipelineTask:
        inputs, fixed, values, run_types = {}, {}, {}, {}
        for name, value in arguments.items():
            parameter = self._signature.parameters.get(name) or FunctionParameter(name, ArgumentType(), None)
            if value is None:
                fixed[name] = _fitting(None, parameter)
                continue
            of_type, values[name] = _value_and_type(value, parameter, f"{self.name}(): {name}")
            if _changes(values[name]):
                fixed[name] = values.pop(name)
                continue
            inputs[name] = InputSpec(_KFP_TYPES[of_type])
            if isinstance(value, pipeline_channel.PipelineChannel):
                run_types[name] = InputSpec(_KFP_TYPES[declared_type(value) or of_type])
        if "func_args" not in given:
            rest = {name: one for name, one in self._inputs_alone().items() if name not in arguments}
            inputs |= {name: one for name, one in rest.items() if one.default is not None}
        # kfp compares the types of inputs and values exactly; those that the step converts are compared here instead.
        task = StepComponent(self._spec({**inputs, **run_types}, fixed), self.python_func)(**given, **values)
        task.component_spec = without_descriptions(self._spec(inputs, fixed))
        return task

    def _spec(self, inputs: Mapping[str, InputSpec], fixed: Mapping[str, Any]) -> ComponentSpec:
        """Return that of `train` with these inputs for arguments; `fixed` are further arguments.

        The program has all settings of the decorator, too: a cache does not compare the defaults of inputs.
        """
        spec: ComponentSpec = copy.copy(train.component_spec)
        program = {
            "function": self._source.as_json(),
            "arguments": [*inputs],
            "fixed": dict(fixed),
            "settings": with_types(self._settings, self._source.name),
            "outputs": self._outputs,
        }
        container = spec.implementation.container
        command = [*container.command, "--program", _text_of(program)]
        spec.implementation = replace(spec.implementation, container=replace(container, command=command))
        spec.name = self._source.name.strip("_").replace("_", "-").lower() or self._source.name
        spec.description = inspect.cleandoc(self.__doc__ or "") or None
        spec.inputs = {**inputs, **self._of_train, "task_config": spec.inputs["task_config"]}
        spec.outputs = {**spec.outputs, **{name: OutputSpec(_KFP_TYPES[one]) for name, one in self._outputs.items()}}
        return spec


def _text_of(program: Mapping[str, Any]) -> str:
    """Return a program as JSON that nobody on its way changes: for Argo and kfp `{{` begins a reference, and `$` for Kubernetes."""
    return json.dumps(program, ensure_ascii=False, separators=(",", ":")).replace("{{", "{\\u007b").replace("$", "\\u0024")


def _refuse_artifacts(func: Callable[..., Any]) -> None:
    """Raises TypeError for an argument that is annotated as kfp's steps have their files: a training pod has none of them."""
    for name, annotation in getattr(inspect.unwrap(func), "__annotations__", {}).items():
        text = annotation if isinstance(annotation, str) else ""
        of_step = is_Input_Output_artifact_annotation(annotation) or isinstance(annotation, InputPath | OutputPath)
        if not (of_step or _OF_STEP.search(text)):
            continue
        if "Output" in (text or repr(annotation)):
            advice = "write checkpoints to /workspace/output, which export_checkpoint exports, and return values"
        else:
            advice = (
                "pass its address as text, or give it to the component as dataset= or model=, with a runtime whose initializers fetch "
                "it to /workspace/dataset or /workspace/model"
            )
        raise TypeError(f"{func.__name__}: {name!r} is an artifact of a step, which training pods do not have; {advice}")


def output_types(func: Callable[..., Any], signature: FunctionSignature) -> dict[str, ValueType]:
    """Return the outputs of a function with their types: the fields of a NamedTuple or TypedDict, else one for a single value.

    Raises TypeError for a field with the name of an output of `train`, or of a type that an output cannot have.
    """
    fields = _fields_of(func)
    if fields is None:  # one value, not several by name
        of_type = _KINDS.get(signature.returns.without_none.kind)
        return {} if of_type is None else {SINGLE: of_type}
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
    except SyntaxError:  # not an annotation that tells a type
        return ArgumentType()


def _value_and_type(value: Any, parameter: FunctionParameter, where: str) -> tuple[ValueType, Any]:
    """Return the type of an argument's input, and the value with which it is called. Raises TypeError for an unfit value."""
    wanted = _input_type(parameter)
    if isinstance(value, pipeline_channel.PipelineChannel):
        try:
            known = value_type(value)
        except TypeError as error:
            raise TypeError(f"{where}: {error}") from None
        return _type_of_run_value(known, wanted, parameter, where), value
    if not is_of_run(value):
        try:
            value = _fitting(value, parameter)
        except ValueError as error:
            raise TypeError(f"{where}: {error}") from None
        of_type = type_of_item(value)
        if of_type is None:
            raise TypeError(f"{where}: JSON has no type {type(value).__name__}")
        return of_type, value
    of_type = type_of_item(value if not isinstance(value, tuple) else list(value))
    if of_type is None or (of_type in ("list", "dict") and wanted not in (None, of_type)):
        raise TypeError(f"{where}: expected {parameter.type}, got {type(value).__name__}")
    return of_type, with_types(value, where)


def _type_of_run_value(known: ValueType | None, wanted: ValueType | None, parameter: FunctionParameter, where: str) -> ValueType:
    """Return the type of an input for a value of which only the type is known. Text and numbers are converted in the step.

    An input that kfp knows as an integer cuts off decimals, so it is one for integers only.
    """
    if known is None:
        return "float" if wanted == "int" else wanted or "str"
    if wanted is None or known == wanted or known == "str":  # text is converted in the step
        return known
    if {known, wanted} == {"int", "float"}:
        return "float"
    raise TypeError(f"{where}: expected {parameter.type}, got a value of type {known}")


def _fitting(value: Any, parameter: FunctionParameter) -> Any:
    if isinstance(value, tuple):
        value = list(value)
    return value if value is None and parameter.default == "None" else convert(value, parameter.type)


def _input_type(parameter: FunctionParameter) -> ValueType | None:
    """Return the type of an argument's input: of its annotation, else of its default; None if neither says one."""
    kind = parameter.type.without_none.kind
    if kind == "choice":
        types = {type_of_item(choice) for choice in parameter.type.without_none.choices}
        return types.pop() if len(types) == 1 else None
    if kind == "any" and parameter.default is not None:
        return type_of_item(_literal(parameter.default))
    return _OF_INPUTS.get(kind)


def _default_of(parameter: FunctionParameter, of_type: ValueType) -> Any:
    """Return the default of an input; None where the function's own default applies if the input is not set."""
    value = _literal(parameter.default) if parameter.default is not None else None
    if value is None or _changes(value):  # the default of the function applies when it runs
        return None
    if of_type == "float" and type(value) is int:
        value = float(value)
    return value if type_of_item(value) == of_type else None


def _changes(value: Any) -> bool:
    """Whether a value would arrive as another one if it were an input. The program has it as it is."""
    return has_large_integer(value) or (has_doubled_dollar(value) and not is_of_run(value))


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError):  # an expression, which only the function can evaluate
        return None
