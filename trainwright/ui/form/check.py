"""Checks what the form has, as it is typed and before anything is created: every problem, with the field that it is about.

The fields are the same twenty as those of the pipeline and of the DAG, from the same table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypedDict

from trainwright.api.errors import Problem
from trainwright.jobs.credentials.secret_detection import LiteralSecret
from trainwright.jobs.request.checks import manifest_file
from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.request.setting import Setting, names_of, settings_of
from trainwright.jobs.request.setting_values import parse_structure
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.identity import new_run_id
from trainwright.steps.data.places import place_uri, source_uri
from trainwright.steps.fine_tuning_defaults import (
    GPU,
    default_exports,
    default_workspace,
    gpus_of_nodes,
    with_secrets,
    without_gpu,
)
from trainwright.steps.phases import phases_of
from trainwright.steps.requests import FineTuning, Run, StartRun
from trainwright.steps.start import workspace_of
from trainwright.text.hub_names import is_bare_name
from trainwright.ui.call import Call, Json

_MAX_TEXT = 64 * 1024
_SOME_WORKSPACE = "pvc://checked"
"""While none is named."""
_SOURCES, _PLACES = ("model_uri", "dataset_uri"), ("export_uri",)
_ELSEWHERE = {
    "code": "submit it with `trainwright submit`, a pipeline or a DAG, or put the code into an image",
    "manifest": "give the object, or its text",
}
SECTIONS = ("Data", "Model", "Training", "Export", "Evaluation", "Run", "Credentials")
PHASES = ("training", "data", "evaluation")
"""Structures with all other settings, last in their sections."""
SECRETS = (
    Setting("store_secret", "text", "", "Credentials", "Secret with credentials of the object store, for pods. Empty: none."),
    Setting("hub_secret", "text", "", "Credentials", "Secret with HF_TOKEN, for pods. Empty: none."),
)
"""Fields of the pipeline that name Secrets; a DAG has connections instead."""


@dataclass(frozen=True)
class Checked:
    """A request that can be made, or the problems that prevent it; a problem without a field is about several."""

    request: FineTuning | None = None
    run: Run | None = None
    problems: tuple[Problem, ...] = field(default=())


def check_form(call: Call) -> Json:
    """Return the problems of the parameters in the body, which is `{parameters: {...}}`. Raises ValueError for another body."""
    found = checked(parameters_of(call), looks_at_files=call.page.may_read_files)
    return {"problems": [{"field": problem.field, "message": problem.message} for problem in found.problems]}


def parameters_of(call: Call) -> Json:
    """Return the parameters in a body. Raises ValueError if they are no object of known names."""
    given = call.body.get("parameters")
    if not isinstance(given, dict):
        raise ValueError("parameters: expected an object")
    known = {one.name for one in settings()}
    unknown = sorted(name[:80] for name in given if name not in known)
    if unknown:
        raise ValueError(f"parameters: unknown: {', '.join(unknown[:5])}")
    too_long = next((name for name, value in given.items() if isinstance(value, str) and len(value) > _MAX_TEXT), "")
    if too_long:
        raise ValueError(f"{too_long}: longer than {_MAX_TEXT} characters")
    return given


def checked(parameters: Json, *, looks_at_files: bool) -> Checked:
    """Check the parameters of a form. With `looks_at_files`, sources and places may be absolute paths of this machine."""
    values = {name: value for name, value in parameters.items() if value is not None}
    secrets = {one.name: values.pop(one.name) for one in SECRETS if values.get(one.name)} if values else {}
    values = {name: value for name, value in values.items() if name not in {one.name for one in SECRETS}}
    if not looks_at_files and (read_here := _read_here(values.get("training"))):
        return Checked(problems=tuple(read_here))  # nothing else is checked: that would read them
    values, of_places = _with_places(values, looks_at_files=looks_at_files)
    missing = [one.name for one in settings() if one.default is ... and values.get(one.name) in (None, "")]
    problems = [*(Problem(name, "required") for name in missing), *of_places]
    values = {name: value for name, value in values.items() if value != "" or name in _TEXTS}
    if isinstance(training := values.get("training", {}), dict):
        try:
            values["training"] = with_secrets(training, secrets)
        except LiteralSecret as error:
            problems += [_about((f"training.{each.field}", each.message)) for each in error.problems]
        except InvalidSettings as error:
            problems += map(_about, error.problems)
    request: FineTuning | None = None
    try:
        request = FineTuning.parse(values)
    except InvalidSettings as error:
        named = {problem.field for problem in problems}
        problems += [each for each in map(_about, error.problems) if each.field not in named]
    run, of_phases = _phases(values)
    named = {problem.field for problem in problems}
    problems += [each for each in of_phases if each.field not in named]
    return Checked(problems=tuple(problems)) if problems else Checked(request, run)


def _read_here(training: Any) -> list[Problem]:
    """Return a problem for each setting of the training that this server would read with its own files and credentials."""
    try:
        given = parse_structure(training)
    except ValueError:  # said by the checks of all values
        return []
    if not isinstance(given, dict):
        return []
    named = [
        name for name, setting in settings_of(TrainRequest).items() if setting.place == "here" and _is_read(name, given.get(name))
    ]
    return [Problem("training", f"{name}: this page reads no files and no repositories; {_ELSEWHERE[name]}") for name in named]


def _is_read(name: str, value: Any) -> bool:
    return manifest_file(value) is not None if name == "manifest" else bool(value)


def _with_places(values: Json, *, looks_at_files: bool) -> tuple[Json, list[Problem]]:
    """Return the values with places as URIs, and the problems of those that are none."""
    problems: list[Problem] = []
    converted = dict(values)
    for name in (*_SOURCES, *_PLACES):
        value: Any = values.get(name)
        if not isinstance(value, str) or not value:
            continue
        if not looks_at_files:
            if "://" not in value:
                problems.append(Problem(name, "expected a URI, such as hf://org/name or s3://bucket/path"))
            continue
        if "://" in value:
            continue
        if not value.startswith(("/", "~")):  # a relative path would be one of the server's folder, which the user does not see
            if name in _SOURCES and is_bare_name(value):
                converted[name] = f"hf://{value}"
            else:
                problems.append(Problem(name, "expected a URI, or a path that begins with /"))
            continue
        try:
            converted[name] = source_uri(value) if name in _SOURCES else place_uri(value)
        except ValueError as error:
            problems.append(Problem(name, str(error)))
    return converted, problems


def _about(problem: tuple[str, str]) -> Problem:
    """Return a problem with the field of the form that it is about, as `training` for `training.settings`."""
    path, message = problem
    if not path:
        path, colon, rest = message.partition(": ")
        path, message = (path, rest) if colon else ("", message)
    first = path.partition(".")[0]
    if first in {one.name for one in settings()}:
        return Problem(first, message if first == path else f"{path}: {message}")
    return Problem("", f"{path}: {message}" if path else message)


def _phases(values: Json) -> tuple[Run | None, list[Problem]]:
    """Return the settings of the steps, or their problems: also while sources are missing, and without the fields that are wrong."""
    own = {"workspace": _SOME_WORKSPACE, **{name: value for name, value in values.items() if name in names_of(StartRun)}}
    try:
        start = StartRun.parse(own)
    except InvalidSettings as error:
        wrong = {path.partition(".")[0] for path, _ in error.problems}
        start = StartRun.parse({"workspace": _SOME_WORKSPACE} | {name: own[name] for name in own if name not in wrong})
    try:
        workspace_of(start.workspace)
        return phases_of(start), []
    except LiteralSecret as error:
        return None, [_about((each.field, each.message)) for each in error.problems]
    except InvalidSettings as error:
        return None, list(map(_about, error.problems))
    except ValueError as error:  # the workspace, which names itself
        return None, [_about(("", str(error)))]


class Field(TypedDict):
    """`kind` is text, integer, number, flag or object; `initial` is what the form begins with."""

    name: str
    kind: str
    section: str
    description: str
    example: str
    choices: list[str]
    required: bool
    initial: Any


def settings() -> list[Setting]:
    """Return the settings of the form: first what is required, then by section."""
    found = [*settings_of(FineTuning).values(), *SECRETS]
    return sorted(found, key=lambda one: (one.default is not ..., SECTIONS.index(one.section), one.name in PHASES))


def show_form(call: Call) -> Json:
    """Return the fields, with what suits this cluster filled in. Raises ApiError."""
    cluster = call.session.cluster
    is_here = call.page.may_read_files and cluster.is_embedded()
    initial: Json = {"workspace": default_workspace(is_here=is_here)}
    if call.page.may_read_files:
        initial["export_uri"] = call.page.new_exports or default_exports(is_here=False)
    gpus = gpus_of_nodes(cluster)
    if gpus:
        initial["resources_per_node"] = {GPU: gpus}
    elif gpus == 0:
        initial["training"] = without_gpu({})
    return {
        "fields": [_field(one, initial) for one in settings()],
        "sections": list(SECTIONS),
        "run": new_run_id(),
        "namespace": cluster.default_namespace,
        "mayLaunch": call.page.launches is not None,
    }


def _field(one: Setting, initial: Json) -> Field:
    default = None if one.default is ... else one.default
    return Field(
        name=one.name,
        kind=one.kind,
        section=one.section,
        description=one.description,
        example=one.example,
        choices=list(one.choices),
        required=one.default is ...,
        initial=initial.get(one.name, default),
    )


_TEXTS = {one.name for one in settings() if one.kind == "text"}
