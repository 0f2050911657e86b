"""Sorts what a person has given for a whole run to its steps, and checks it before any of them begins.

A form has few fields and one structure for each phase. Every name is checked here, so that a misspelled setting ends the run within
seconds and is never left out in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trainwright.jobs.request.setting_names import EVALUATION_SETTINGS, SETTINGS
from trainwright.jobs.request.setting_values import parse_structure
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.validation_problems import message_of
from trainwright.jobs.trainers.report_settings import OF_TRL, report_settings
from trainwright.jobs.trainers.sft import SftSettings
from trainwright.jobs.trainers.trl import is_switched_on, option_value
from trainwright.steps.parameter_tables import STEP_PARAMETERS
from trainwright.steps.requests import (
    EvaluateExport,
    ExportCheckpoint,
    InitializeDataset,
    PreprocessDataset,
    PromoteModel,
    RegisterModel,
    StartRun,
)
from trainwright.steps.row_trainer import row_trainer
from trainwright.text.suggest import suggest

OF_THE_CHAIN = frozenset(
    {
        "checkpoint_digest",
        "checkpoint_uri",
        "data_uri",
        "dataset_digest",
        "dataset_uri",
        "evaluation",
        "champion_digest",
        "champion_evaluation",
        "export_uri",
        "folder",
        "model_digest",
        "model_shape",
        "model_uri",
        "registry",
        "rule",
        "trainer",
        "trainjob",
        "usage",
        "workspace",
    }
)
"""Parameters of steps that the chain itself fills in, from fields of the form or results of other steps."""
RUN_SETTINGS = {
    "run_id": "",
    "namespace": "",
    "submission_mode": "",
    "workspace_path": "",
    "tie_to_run": True,
    "runs_on": "auto",
    "job": {},
    "hub_conn_id": "",
}
"""Settings of the run as a whole, which are given among those of the training, with their defaults."""
JOB_RETRIES = "job_retries"
"""A setting of the component of the training; tasks of Airflow have retries of their own."""
_SECRETS = ("store_secret", "hub_secret")
_TRAINER_SETTINGS = ("method", "epochs", "learning_rate", "batch_size", "max_length")
"""Fields of the form that are settings of the builtin trainer."""
_TRAINING_FIELDS = ("num_nodes", "resources_per_node", "queue_name", "runtime")
_PROGRAMS = ("func", "code", "manifest", "command", "args")
_SHARED = tuple(name for name in EVALUATION_SETTINGS if name not in ("image", "resources_per_node", "logs", "log_bytes"))
"""Settings of the training's job that the job of the evaluation has too, unless it has others."""
PROMOTE, REGISTRY = "promote_", "registry_"
"""Before the names of parameters of promotion and registration, in the structure of the evaluation."""


@dataclass(frozen=True)
class Phases:
    """The settings of each step by name, for its parameter `more`; `run` are those of RUN_SETTINGS."""

    run: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    preprocessing: dict[str, Any] = field(default_factory=dict)
    export: dict[str, Any] = field(default_factory=dict)
    evaluation: dict[str, Any] = field(default_factory=dict)
    promotion: dict[str, Any] = field(default_factory=dict)
    registration: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)
    """Those of the chain itself, which its defaults name."""

    def as_dict(self) -> dict[str, dict[str, Any]]:
        return asdict(self)


def phases_of(request: StartRun, run: Mapping[str, Any] | None = None) -> Phases:
    """Return the settings of each step. `run` are RUN_SETTINGS that were given apart, and hold unless those of the training differ.

    Raises ValueError for a setting that is unknown, invalid, given twice, or not for this program; LiteralSecret.
    """
    training, of_run = _training(request)
    data, preprocessing = _data(request)
    given = {**request.defaults, **request.evaluation}
    names = {
        "export": _free(ExportCheckpoint),
        "evaluation": (*_free(EvaluateExport), *EVALUATION_SETTINGS),
        "promotion": tuple(PROMOTE + name for name in _free(PromoteModel)),
        "registration": tuple(REGISTRY + name for name in _free(RegisterModel)),
    }
    names["own"] = tuple(name for name in request.defaults if not any(name in known for known in names.values()))
    _check_names("evaluation", given, [name for known in names.values() for name in known])
    chosen = {step: {name: given[name] for name in known if name in given} for step, known in names.items()}
    shared = {name: training[name] for name in _SHARED if name in training}
    of_run = _with_secrets(of_run, training)
    phases = Phases(
        run={**RUN_SETTINGS, **{name: value for name, value in (run or {}).items() if value}, **of_run},
        training=training,
        data=data,
        preprocessing=preprocessing,
        export=chosen["export"],
        evaluation={**shared, **chosen["evaluation"]},
        promotion=_without(PROMOTE, chosen["promotion"]),
        registration=_without(REGISTRY, chosen["registration"]),
        own=chosen["own"],
    )
    _check_values(phases)
    trainer = _trainer(phases.training)
    _check_best(phases, trainer)
    of_data = {**report_settings(phases.training.get("settings") or {}, trainer), **({"trainer": trainer} if trainer else {})}
    return replace(phases, data={**of_data, **phases.data})


def _training(request: StartRun) -> tuple[dict[str, Any], dict[str, Any]]:
    given = dict(request.training)
    _check_names("training", given, [*(name for name in SETTINGS if name not in OF_THE_CHAIN), JOB_RETRIES, *RUN_SETTINGS])
    run = {name: given.pop(name) for name in RUN_SETTINGS if name in given}
    for name in _TRAINING_FIELDS:
        _add(given, name, getattr(request, name), "training")
    settings = dict(_parsed_object("training.settings", given.get("settings")))
    for name in _TRAINER_SETTINGS:
        if value := getattr(request, name):
            program = next((one for one in _PROGRAMS if given.get(one)), None)
            if program is not None:
                raise ValueError(
                    f"{name}: a setting of a builtin trainer, but training.{program} is a program that does not read it"
                )
            _add(settings, name, value, "training.settings")
    if settings:
        given["settings"] = settings
    return given, run


def _with_secrets(run: Mapping[str, Any], training: Mapping[str, Any]) -> dict[str, Any]:
    """Give the Secrets of the training to the jobs in which other steps run: they read and write the same places."""
    secrets = {name: training[name] for name in _SECRETS if training.get(name)}
    return {**run, "job": {**secrets, **_parsed_object("training.job", run.get("job"))}} if secrets else dict(run)


def _data(request: StartRun) -> tuple[dict[str, Any], dict[str, Any]]:
    given, before = request.data, _free(PreprocessDataset) if request.preprocesses else ()
    known = [name for name in _free(InitializeDataset) if name not in before]
    _check_names("data", given, [*known, *before])
    data, preprocessing = ({name: given[name] for name in names if name in given} for names in (known, before))
    return data, preprocessing


def _check_values(phases: Phases) -> None:
    """Parse everything once with what other steps will add, so that a wrong value is an error now."""
    uri, digest = "file:///checked", f"sha256:{'0' * 64}"
    checkpoint = {"checkpoint_uri": uri, "checkpoint_digest": digest}
    with_data = {} if phases.training.get("manifest") else {"dataset_uri": uri, "model_uri": uri}
    try:
        TrainRequest.from_parameters({**phases.training, **with_data})
        TrainRequest.from_parameters({name: phases.evaluation[name] for name in EVALUATION_SETTINGS if name in phases.evaluation})
    except ValueError as error:
        raise ValueError(f"training: {message_of(error)}") from None
    of_evaluation = {name: value for name, value in phases.evaluation.items() if name in EvaluateExport.model_fields}
    for structure, request, given in (
        ("data", InitializeDataset, {"dataset_uri": uri, **phases.data}),
        ("data", PreprocessDataset, {"data_uri": uri, **phases.preprocessing}),
        ("evaluation", ExportCheckpoint, {"export_uri": uri, **phases.export}),
        ("evaluation", EvaluateExport, {**checkpoint, **of_evaluation}),
        ("evaluation", PromoteModel, {"export_uri": uri, **checkpoint, **phases.promotion}),
        ("evaluation", RegisterModel, {"registry": "mlflow://checked", **checkpoint, **phases.registration}),
    ):
        try:
            request.checked(given)
        except ValueError as error:
            raise ValueError(f"{structure}.{error}") from None


def _check_best(phases: Phases, trainer: str) -> None:
    """Raise ValueError if the best checkpoint is to be exported, and a trainer of TRL is not asked to find it."""
    if phases.export.get("which") != "best" or trainer not in OF_TRL:
        return
    settings = _parsed_object("training.settings", phases.training.get("settings"))
    words = [str(word) for word in settings.get("extra") or ()]
    if not is_switched_on(words, "load_best_model_at_end") and option_value(words, "metric_for_best_model") is None:
        raise ValueError(
            "evaluation.which: best needs a training that compares its checkpoints: training.settings with eval_strategy, and "
            '"extra": ["--load_best_model_at_end", "True", "--save_strategy", STRATEGY] with the same strategy; or use last'
        )


def _trainer(training: Mapping[str, Any]) -> str:
    """Return the builtin trainer that the rows are for, if it is known. Raises NoSuchTrainer."""
    if any(training.get(program) for program in _PROGRAMS):
        return ""
    return row_trainer(TrainRequest(builtin=str(training.get("builtin") or ""), runtime=str(training.get("runtime") or "")))


def _parsed_object(name: str, value: Any) -> dict[str, Any]:
    try:
        found = parse_structure(value) or {}
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{name}: expected an object with settings by name")
    return found


def _add(given: dict[str, Any], name: str, value: Any, structure: str) -> None:
    """Add a field of the form to a structure. Raises ValueError if both have it."""
    if not value:
        return
    if given.get(name) not in (None, "", 0, {}, value):
        raise ValueError(f"{name}: given twice, as {str(value)[:80]} and in {structure} as {str(given[name])[:80]}; give it once")
    given[name] = value


def _free(request: type[Any]) -> tuple[str, ...]:
    """The parameters of a step that the chain does not fill in."""
    return tuple(name for name in STEP_PARAMETERS[request.__name__] if name not in OF_THE_CHAIN)


def _check_names(structure: str, given: Iterable[str], known: Iterable[str]) -> None:
    names = list(known)
    for name in given:
        if name in OF_THE_CHAIN:
            raise ValueError(f"{structure}.{name}: the pipeline sets it, from its own parameter or from an earlier step")
        if structure == "training" and name not in names and name in SftSettings.model_fields:
            raise ValueError(
                f'training.{name}: a setting of the builtin trainer, which is given in settings: {{"settings": {{"{name}": ...}}}}'
            )
        if name not in names:
            raise ValueError(f"{structure}.{str(name)[:80]}: unknown setting; {suggest(str(name), names)}")


def _without(prefix: str, given: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in given.items()}
