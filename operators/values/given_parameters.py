"""What a DAG gives to a task: checked when the DAG is parsed, and rendered to text when the task runs.

Airflow makes a mapped task only when it runs. Until then a wrong name would stay unnoticed, and a literal credential would be in
the serialized DAG, for everyone who reads it. Templates and results of other tasks are checked when the task runs, and so are the
arguments of a mapped function of `@task.trainjob`: Airflow offers no place to look at them before.

Text renders to text, also in a DAG with `render_template_as_native_obj=True`. Jinja's native rendering reads all text as Python,
with or without a template in it: "1" becomes 1, and "1.10" 1.1. A variable, a label or an argument is text, and stays as the user
wrote it. An argument of a training function has the type of what its template names, and the function's annotations say what it
must be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from inspect import isfunction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from airflow.sdk.definitions.mappedoperator import OperatorPartial

from trainwright.operators.groups import check_flat_names, check_groups

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import BaseOperator as _Operator
    from airflow.sdk import Context
else:
    _Operator = object  # Airflow would skip the other base of a sensor if this were an operator itself

_OWN = frozenset(
    {"conn_id", "hub_conn_id", "name", "namespace", "run_id", "runs_on", "store_conn_id", "submission_mode", "workspace_path"}
)
_STRUCTURES = frozenset(
    {"data", "defaults", "evaluation", "job", "run", "training", "preprocessing", "export", "promotion", "registration"}
)
"""Objects of settings by name, except the groups."""
_OF_FUNCTIONS = frozenset({"func_args", "op_args", "op_kwargs"})
"""Arguments of a training function."""
Path = tuple[Any, ...]
"""The name of an argument, and keys and numbers of entries in it."""
_TEMPLATE_SIGNS = ("{{", "{%")


class ChecksGivenParameters(_Operator):
    """An operator whose parameters are checked as soon as they are known: those of a mapped task when it is mapped."""

    groups: ClassVar[Collection[str]] = ()
    """Parameters that are groups of settings."""

    @classmethod
    def check_given(cls, given: Mapping[str, Any]) -> None:
        """Check some or all parameters, as a DAG has given them.

        Raises LiteralSecret, ValueError for a name that a group has not, TypeError for a setting of a group in place of the group.
        """
        check_flat_names(cls.groups, given)
        cls.check_values(given)

    @classmethod
    def check_values(cls, given: Mapping[str, Any]) -> None:
        """Check the values of parameters, as `__init__` of each operator does. Airflow's own parameters are not searched.

        Raises LiteralSecret, ValueError for a name that a group has not.
        """
        reject_literal_secrets({name: given[name] for name in ("func", *cls.template_fields, *cls.groups) if name in given})
        check_groups(**{name: given[name] for name in cls.groups if name in given})

    @classmethod
    def partial(cls, **given: Any) -> OperatorPartial:
        """Return the task before it is mapped, as Airflow's operators do. Raises as `check_given`, and so do its `expand` methods."""
        cls.check_given(given)
        made = super().partial(**given)
        made._expand_called = True  # or it warns that it was never mapped
        return _CheckedPartial(operator_class=made.operator_class, kwargs=made.kwargs, params=made.params)


class _CheckedPartial(OperatorPartial):
    def expand(self, **mapped: Any) -> Any:
        for name, values in mapped.items():
            for value in values if isinstance(values, list | tuple) else (values,):
                self._check({name: value})
        return super().expand(**mapped)

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> Any:
        for one in kwargs if isinstance(kwargs, list | tuple) else ():
            self._check(one)
        return super().expand_kwargs(kwargs, strict=strict)

    def _check(self, given: Any) -> None:
        if isinstance(given, Mapping) and issubclass(self.operator_class, ChecksGivenParameters):
            self.operator_class.check_given(given)


def reject_literal_secrets(fields: dict[str, Any]) -> None:
    """Check the plain values of an operator's fields, and mask what is found in logs. Raises LiteralSecret naming the fields."""
    from trainwright.jobs.credentials.credential_patterns import find_literals, without_templates

    plain = {name: without_templates(_source(value) if isfunction(value) else value) for name, value in fields.items()}
    found = [literal for name, value in plain.items() for literal in find_literals(name, value)]
    if not found:
        return
    from airflow.sdk.log import mask_secret

    from trainwright.jobs.credentials.secret_detection import reject_literals

    for literal in found:
        mask_secret(literal.value)
    reject_literals(plain)


def _source(function: Any) -> str | None:
    from trainwright.jobs.code.function_source import source_of

    try:
        found = source_of(function)
    except ValueError:  # said when its arguments are checked
        return None
    return found.source if found is not None else None


class _Names(NamedTuple):
    """Names of parameters: those that are text, those whose entries are, and objects of settings by name."""

    text: frozenset[str]
    texts: frozenset[str]
    structures: frozenset[str]


@cache
def _names() -> _Names:
    """The names of parameters of all operators, from the definitions, which a worker reads when it renders templates.

    A template of a text may still render to an object: `trainjob` takes the XCom of a task.
    """
    from trainwright.jobs.request.setting import Settings, options_of, settings_of
    from trainwright.jobs.request.train_request import TrainRequest
    from trainwright.steps import requests

    classes: list[type[Settings]] = [
        one for one in vars(requests).values() if isinstance(one, type) and issubclass(one, Settings)
    ]
    rows = [*options_of(TrainRequest).values(), *(row for one in classes for row in settings_of(one).values())]
    return _Names(
        _OWN | {row.name for row in rows if row.kind == "text"},
        frozenset({"tracking"} | {row.name for row in rows if row.has_texts}),
        _STRUCTURES | {row.name for one in (*classes, TrainRequest) for row in settings_of(one).values() if row.of is not None},
    )


class TextTemplates(ChecksGivenParameters):
    """An operator whose text parameters, and texts in lists and objects of text, render to text. All others are Airflow's."""

    # A task that was mapped is rendered by this method alone.
    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: jinja2.Environment, seen_oids: set[int]
    ) -> None:
        fields = list(template_fields)
        if parent is self:
            for name in fields:
                setattr(self, name, _with_texts(name, getattr(self, name), jinja_env))
        super()._do_render_template_fields(parent, fields, context, jinja_env, seen_oids)


class _Text:
    """A template of text. Airflow calls `resolve` of what is in a template field."""

    as_text: ClassVar[tuple[type[Any], ...]] = (str, int, float)

    def __init__(self, template: str, environment: jinja2.Environment):
        self._template, self._environment = template, environment

    def __repr__(self) -> str:
        return repr(self._template)

    def resolve(self, context: Context) -> Any:
        """Return the text; the object itself if the template is one expression with another value than text, a
        number or a boolean."""
        template = self._environment.from_string(self._template)
        parts = list(template.root_render_func(template.new_context(dict(context))))
        if len(parts) == 1 and not isinstance(parts[0], self.as_text):
            return parts[0]  # None, an object or a list, which only native rendering passes on
        return "".join(map(str, parts))


class _Argument(_Text):
    """A template of an argument, which may be a number or a boolean as well."""

    as_text = (str,)


def _with_texts(name: str, value: Any, environment: jinja2.Environment) -> Any:
    names = _names()
    if name in _OF_FUNCTIONS:  # the annotations of the function say what its arguments must be
        return _entries(value, environment, _Argument)
    if name in names.text and isinstance(value, str):
        return _entries(value, environment)
    if name in names.texts and isinstance(value, dict | list | tuple):
        return _entries(value, environment)
    if name in names.structures and isinstance(value, dict):
        return {key: _with_texts(key, entry, environment) for key, entry in value.items()}
    return value


def _entries(value: Any, environment: jinja2.Environment, kind: type[_Text] = _Text) -> Any:
    if isinstance(value, str):
        return kind(value, environment)
    if isinstance(value, dict):
        return {key: _entries(entry, environment, kind) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_entries(entry, environment, kind) for entry in value]
    return value


def check_arguments(func: Any, arguments: Any) -> Any:
    """Check the arguments of a training function as far as they are known, and return them with these as JSON has them.

    Raises ValueError for names that are unknown or missing, and for values that are not templates and of a wrong type, or of one that
    JSON does not have.
    """
    from trainwright.jobs.code.function_arguments import check_names, converted_arguments, signature_of
    from trainwright.jobs.code.function_source import source_of

    function = source_of(func)
    # No function is given, or one template makes all arguments.
    if function is None or not isinstance(arguments, Mapping):
        return arguments
    try:
        check_names(signature_of(function), arguments)
        known = converted_arguments(function, {name: value for name, value in arguments.items() if _is_known(value)})
        return {**arguments, **known}
    except ValueError as error:
        raise ValueError(f"func_args: {error}") from None


def check_rendered(func: Any, arguments: Any, templated: frozenset[Path]) -> None:
    """Raise ValueError for the rendered text of a template that may be of another type, if no annotation says which."""
    from trainwright.jobs.code.function_arguments import is_ambiguous
    from trainwright.jobs.code.function_source import source_of

    function = source_of(func)
    if function is None or not isinstance(arguments, Mapping):  # as in `check_arguments`
        return
    for path in sorted(templated, key=str):
        if is_ambiguous(function, arguments, path):
            name = "".join([str(path[0]), *(f"[{key!r}]" for key in path[1:])])
            raise ValueError(
                f"func_args.{name}: the text that the template rendered to may be meant as another type; annotate the parameter "
                f"in {function.name}()"
            )


def templated_arguments(arguments: Any) -> frozenset[Path]:
    """Return the places of templates in the arguments."""
    return frozenset(_templates(arguments, ())) if isinstance(arguments, Mapping) else frozenset()


def _templates(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, Mapping | list | tuple):
        for key, one in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _templates(one, (*path, key))
    elif _is_template(value):
        yield path


def _is_template(value: Any) -> bool:
    return isinstance(value, str) and any(sign in value for sign in _TEMPLATE_SIGNS)


def _is_known(value: Any) -> bool:
    """Whether a value is final when the DAG is parsed: no template, and no object of Airflow for a result, at any depth."""
    if isinstance(value, Mapping):
        return all(map(_is_known, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_known, value))
    return not _is_template(value) and type(value).__module__.partition(".")[0] != "airflow"
