"""Sorts what a person has given for a whole run to its steps, and checks it before any of them begins.

A form has few fields and one structure for each phase. Every name is checked here, so that a misspelled setting ends the run within
seconds and is never left out in silence. So is whether the prepared rows are for the builtin trainer of the training, as far as it
is known without the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainwright.initializers.columns import check_receipt
from trainwright.jobs.credentials.secret_detection import reject_literals
from trainwright.jobs.manifest.training_program import own_program
from trainwright.jobs.request.groups import Placement, Secrets
from trainwright.jobs.request.invalid_settings import InvalidSettings, within
from trainwright.jobs.request.setting import names_of, paths_of
from trainwright.jobs.request.setting_values import floats_to_integers
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.trainers.builtin_trainers import named_trainer, trainer_for
from trainwright.jobs.trainers.report_settings import OF_TRL, report_settings
from trainwright.jobs.trainers.sft import SftSettings
from trainwright.jobs.trainers.trl import is_switched_on, option_value
from trainwright.runtimes import bundled_runtime
from trainwright.steps.requests import (
    EvaluateExport,
    ExportCheckpoint,
    FilesJob,
    InitializeDataset,
    PreprocessDataset,
    PromoteModel,
    RegisterModel,
    Run,
    RunPlace,
    StartRun,
    job_request,
)
from trainwright.text.suggest import suggest
from trainwright.workspace.layout import prepared_path
from trainwright.workspace.receipt import read_receipt

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
_TRAINER_SETTINGS = ("method", "epochs", "learning_rate", "batch_size", "max_length")
"""Fields of the form that are settings of the builtin trainer."""
_PROGRAMS = ("func", "code", "manifest", "command", "args")
_SHARED: Mapping[str, tuple[str, ...]] = {
    "placement": ("queue_name", "priority_class", "topology", "node_selector", "tolerations", "affinity", "annotations"),
    "limits": ("queue_timeout_seconds", "start_timeout_seconds", "run_timeout_seconds"),
    "ending": ("on_cancel", "waiter_lease_seconds", "tie_to_run"),
    "secrets": ("hub_secret",),
}
"""Settings of the training's job, with `env` and `labels`, that the job of the evaluation has too, unless it has others. Its program,
volumes and patches are another's."""
PROMOTE, REGISTRY = "promote_", "registry_"
"""Before the names of parameters of promotion and registration, in the structure of the evaluation."""
_URI, _DIGEST = "file:///checked", f"sha256:{'0' * 64}"
"""Stand for what the chain fills in, while settings are checked."""


def phases_of(request: StartRun, place: RunPlace | None = None) -> Run:
    """Return the settings of each step. `place` has the settings of the run that were given outside of `training`.

    Raises InvalidSettings for a setting that is unknown, invalid, given twice, or not for this program; LiteralSecret.
    """
    reject_literals(request.given_values())  # the run is the output of its first step, for everyone
    training, of_run = _training(request)
    data, preprocessing = _data(request)
    given, defaults = _Evaluation(request, request.evaluation), _Evaluation(request, request.defaults)
    groups = {group: getattr(training, group).only(*names) for group, names in _SHARED.items()}
    flat = {name: getattr(training, name) for name in ("env", "labels") if name in training.given}
    run = Run(
        training=training,
        data=data,
        preprocessing=preprocessing,
        export=given.export.over(defaults.export),
        evaluation=given.evaluation.over(defaults.evaluation).over(
            EvaluateExport().having(**flat, **{group: found for group, found in groups.items() if found.given})
        ),
        promotion=given.promotion.over(defaults.promotion),
        registration=given.registration.over(defaults.registration),
        own={**defaults.own, **given.own},
    )
    of_run = of_run if place is None else of_run.over(place)
    run = run.having(**{name: getattr(of_run, name) for name in of_run.given})
    _check(run)
    trainer = "" if any(getattr(training, program) for program in _PROGRAMS) else row_trainer(training)
    _check_best(run, trainer)
    of_data = {**report_settings(training.settings, trainer), **({"trainer": trainer} if trainer else {})}
    return run.having(data=run.data.over(InitializeDataset.parse_some(of_data)))


def _training(request: StartRun) -> tuple[TrainRequest, RunPlace]:
    """Return the settings of the training and of its run, from the fields of the form and the structure `training`."""
    names = [name for name in paths_of(TrainRequest).values() if name not in OF_THE_CHAIN]
    _check_names("training", request.training, [*names, *names_of(RunPlace)])
    settings = {name: value for name in _TRAINER_SETTINGS if (value := getattr(request, name))}
    secrets = {name: value for name in ("store_secret", "hub_secret") if (value := getattr(request, name))}
    fields = TrainRequest().having(
        **{name: value for name in ("runtime", "num_nodes", "resources_per_node") if (value := getattr(request, name))},
        **({"placement": Placement().having(queue_name=request.queue_name)} if request.queue_name else {}),
        **({"secrets": Secrets().having(**secrets)} if secrets else {}),
    )
    # Steps of one run that differ would not find each other's jobs.
    if "submission_mode" in (request.training.get("placement") or {}):
        path = "training.placement.submission_mode"
        raise InvalidSettings([(path, "the steps of a run have one mode: give training.submission_mode")])
    with within("training"):
        run = RunPlace.parse({name: value for name, value in request.training.items() if name in names_of(RunPlace)})
        given = TrainRequest.parse_some(
            {name: value for name, value in request.training.items() if name not in names_of(RunPlace)}
        )
        training = given.joined(fields)
    if program := next((one for one in _PROGRAMS if settings and getattr(training, one)), None):
        raise InvalidSettings(
            [
                (name, f"a setting of a builtin trainer, but training.{program} is a program that does not read it")
                for name in settings
            ]
        )
    if twice := [name for name, value in settings.items() if training.settings.get(name) not in (None, "", 0, {}, value)]:
        raise InvalidSettings([(name, f"given twice, also in training.settings.{name}; give it once") for name in twice])
    if settings:
        training = training.having(settings=floats_to_integers({**training.settings, **settings}))
    return training, _with_secrets(run, training)


def _check_names(structure: str, given: Iterable[str], known: Iterable[str]) -> None:
    paths = list(known)
    names = {path.partition(".")[0] for path in paths}
    for name in given:
        if name in OF_THE_CHAIN:
            reason = "the pipeline sets it, from its own parameter or from an earlier step"
        elif name in names:
            continue
        elif structure == "training" and name in SftSettings.model_fields:
            reason = f'a setting of the builtin trainer, which is given in settings: {{"settings": {{"{name}": ...}}}}'
        else:
            path = next((path for path in paths if path.partition(".")[2] == name), "")
            reason = (
                f"unknown setting; it is {structure}.{path}" if path else f"unknown setting; {suggest(str(name), list(names))}"
            )
        raise InvalidSettings([(f"{structure}.{str(name)[:80]}", reason)])


def _with_secrets(run: RunPlace, training: TrainRequest) -> RunPlace:
    """Give the Secrets of the training to the jobs in which other steps run: they read and write the same places."""
    secrets = training.secrets.only("store_secret", "hub_secret")
    return run.having(job=run.job.over(FilesJob().having(secrets=secrets))) if secrets.given else run


def _data(request: StartRun) -> tuple[InitializeDataset, PreprocessDataset]:
    """Sort the structure `data`: a setting that both steps have is for the first one, which preprocesses."""
    before = _free(PreprocessDataset) if request.preprocesses else []
    known = [name for name in _free(InitializeDataset) if name not in before]
    _check_names("data", request.data, [*known, *before])
    with within("data"):
        data = InitializeDataset.parse_some(_chosen(request.data, known))
        return data, PreprocessDataset.parse_some(_chosen(request.data, before))


def _free(request: type[Any]) -> list[str]:
    """Return the parameters of a step that the chain does not fill in."""
    return [name for name in names_of(request) if name not in OF_THE_CHAIN]


def _chosen(given: Mapping[str, Any], names: Iterable[str], prefix: str = "") -> dict[str, Any]:
    return {name.removeprefix(prefix): given[name] for name in names if name in given}


class _Evaluation:
    """What a structure `evaluation` has for each of its steps; `own` is what only the defaults of the chain name."""

    def __init__(self, request: StartRun, given: Mapping[str, Any]):
        of_export, of_evaluation = _free(ExportCheckpoint), _free(EvaluateExport)
        paths = [path for path in paths_of(EvaluateExport).values() if "." in path]
        of_promotion = [PROMOTE + name for name in _free(PromoteModel)]
        of_registration = [REGISTRY + name for name in _free(RegisterModel)]
        known = [*of_export, *of_evaluation, *of_promotion, *of_registration]
        of_chain = [name for name in request.defaults if name not in known]
        _check_names("evaluation", given, [*known, *of_chain, *paths])
        with within("evaluation"):
            self.export = ExportCheckpoint.parse_some(_chosen(given, of_export))
            self.evaluation = EvaluateExport.parse_some(_chosen(given, of_evaluation))
            with within(PROMOTE, ""):
                self.promotion = PromoteModel.parse_some(_chosen(given, of_promotion, PROMOTE))
            with within(REGISTRY, ""):
                self.registration = RegisterModel.parse_some(_chosen(given, of_registration, REGISTRY))
        self.own = _chosen(given, of_chain)


def _check(run: Run) -> None:
    """Check everything once with what other steps will add, so that a wrong value is an error now."""
    data = {} if run.training.manifest is not None else {"dataset_uri": _URI, "model_uri": _URI}
    checkpoint = {"checkpoint_uri": _URI, "checkpoint_digest": _DIGEST}
    with within("training"):
        run.training.having(**data).checked()
    with within("training.job"):
        job_request(run.job).checked()
    with within("data"):
        run.data.having(dataset_uri=_URI).checked()
        run.preprocessing.having(data_uri=_URI).checked()
    with within("evaluation"):
        run.export.having(export_uri=_URI).checked()
        job_request(run.evaluation.having(**checkpoint).checked()).checked()
        run.promotion.having(export_uri=_URI, **checkpoint).checked()
        run.registration.having(registry="mlflow://checked", **checkpoint).checked()


def _check_best(run: Run, trainer: str) -> None:
    """Raise InvalidSettings if the best checkpoint is to be exported, and a trainer of TRL is not asked to find it."""
    if run.export.which != "best" or trainer not in OF_TRL:
        return
    words = [str(word) for word in run.training.settings.get("extra") or ()]
    if not is_switched_on(words, "load_best_model_at_end") and option_value(words, "metric_for_best_model") is None:
        raise InvalidSettings(
            [
                (
                    "evaluation.which",
                    "best needs a training that compares its checkpoints: training.settings with eval_strategy, and "
                    '"extra": ["--load_best_model_at_end", "True", "--save_strategy", STRATEGY] with the same strategy; or use last',
                )
            ]
        )


def row_trainer(request: TrainRequest) -> str:
    """Return the name of the builtin trainer; empty for another program, and for a runtime that only the cluster knows.

    Raises NoSuchTrainer.
    """
    if request.builtin:
        return named_trainer(request.builtin).name
    runtime = None if request.has_program else bundled_runtime(request.runtime_name)
    trainer = trainer_for(request, runtime, own_program(request, runtime)) if runtime is not None else None
    return trainer.name if trainer is not None else ""


def check_prepared_rows(request: TrainRequest, workspace_path: str) -> None:
    """Check the rows of the prepared dataset before a job is submitted for them, if this process sees the workspace.

    Otherwise the initializer of the job does. Raises InitializerError, NoSuchTrainer.
    """
    if not workspace_path or not request.dataset_digest:  # there is nothing to compare with
        return
    receipt = read_receipt(prepared_path(Path(workspace_path), "dataset", request.dataset_digest))
    if receipt is not None:
        check_receipt(receipt, row_trainer(request))
