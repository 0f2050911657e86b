"""Registers an export in MLflow, by reference: a registered model, a version whose source is the export, and its alias last.

MLflow numbers versions itself and accepts any number of the same source. An export is recognised by a tag with its digest, which is
set in the request that creates the version, so that no version is without it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from trainwright.api.times import parse_time
from trainwright.checkpoints.registries.export_facts import ExportFacts
from trainwright.checkpoints.registries.registration import (
    Registration,
    RegistrationConflict,
    RegistrationError,
    RegistrationOptions,
    RegistryTarget,
)
from trainwright.storage.errors import StorageError, Transient
from trainwright.storage.uri import checked_address
from trainwright.text.foreign_texts import one_line, without_credentials
from trainwright.text.text_input import is_number

log = logging.getLogger(__name__)
TRACKING, REGISTRY = "MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"
MANIFEST = "trainwright.manifest"
_TRANSIENT = frozenset({"INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED", "RESOURCE_LIMIT_EXCEEDED"})
_DATABASE = "the extra mlflow is for the address of a server, for a database pip install mlflow"
_HINTS = (
    (
        "Invalid model version source",
        "an MLflow server refuses file://, it takes exports in object stores only",
    ),
    ("unsupported URI", f"this client cannot use {TRACKING} or {REGISTRY}; {_DATABASE}"),
)
"""What to do, by what MLflow says."""
_BATCH = 1000
"""Metrics that MLflow takes in one request."""
_MAX_POINTS = 2000
"""Of one metric; of longer histories every n-th is logged."""
_MAX_CURVES = 50
_MAX_NAME = 250


def register_in_mlflow(
    facts: ExportFacts, target: RegistryTarget, options: RegistrationOptions, environ: Mapping[str, str]
) -> Registration:
    """Register an export as a version of the model of `target`, in the MLflow of MLFLOW_TRACKING_URI or MLFLOW_REGISTRY_URI.

    A second registration of the same export returns the first, and moves the alias to it if one is given. With `log_run`, the
    metrics of training are logged as a run in the experiment of the model's name. Raises RegistrationError, StorageError.
    """
    from mlflow import MlflowClient

    tracking, registry = _addresses(target, environ)
    with _errors(target):
        client = MlflowClient(tracking_uri=tracking, registry_uri=registry)
    return _Registering(client, facts, target, options).run()


class _Registering:
    def __init__(self, client: Any, facts: ExportFacts, target: RegistryTarget, options: RegistrationOptions):
        self._client, self._facts, self._target, self._options = client, facts, target, options
        self._model = target.model

    def run(self) -> Registration:
        with _errors(self._target):
            if not _exists(lambda: self._client.get_registered_model(self._model)):
                _create(lambda: self._client.create_registered_model(self._model))
            run_id = self._get_or_create_run() if self._options.log_run else None
            number, existed = self._get_or_create_version(run_id)
            if self._options.alias:
                self._client.set_registered_model_alias(self._model, self._options.alias, number)
        uri = f"models:/{self._model}/{number}"
        log.info("event=export_registered uri=%s existed=%s", uri, existed)
        return Registration("mlflow", self._model, number, uri, self._facts.digest, existed)

    def _get_or_create_version(self, run_id: str | None) -> tuple[str, bool]:
        """Return the number of the export's first version. Of two processes that create one, the later removes its own."""
        if existing := self._versions():  # registered by an earlier try
            return str(existing[0]), True
        made = self._client.create_model_version(
            self._model,
            self._facts.uri,
            run_id=run_id,
            tags=_tags(self._facts),
            description=f"Step {self._facts.step}" + (f" of the run {self._facts.run}" if self._facts.run else ""),
        )
        first = min(self._versions(), default=int(made.version))
        if first != int(made.version):
            log.info("event=already_registered registry=%s version=%d reason=%r", self._target, first, "created meanwhile")
            self._client.delete_model_version(self._model, made.version)
        return str(first), first != int(made.version)

    def _versions(self) -> list[int]:
        """Return the numbers of the versions with this export, sorted."""
        query = f"name = '{self._model}' and tags.`{MANIFEST}` = '{self._facts.digest}'"
        return sorted(int(version.version) for version in self._client.search_model_versions(query))

    def _get_or_create_run(self) -> str:
        """Return the run with the metrics of this export. One that a crash has left incomplete is completed."""
        experiment = self._client.get_experiment_by_name(self._model)
        if experiment is None:
            _create(lambda: self._client.create_experiment(self._model))
            experiment = self._client.get_experiment_by_name(self._model)
        if experiment is None or experiment.lifecycle_stage != "active":
            raise RegistrationConflict(f"{self._target}: the experiment {self._model!r} was deleted; restore it, or log no run")
        try:
            moment = int(parse_time(self._facts.created).timestamp() * 1000)
        except ValueError:  # the same for each try, too
            moment = 0
        found = self._client.search_runs([experiment.experiment_id], f"tags.`{MANIFEST}` = '{self._facts.digest}'")
        run = next(iter(found), None) or self._client.create_run(
            experiment.experiment_id, start_time=moment, tags=_tags(self._facts), run_name=self._facts.default_version
        )
        run_id: str = run.info.run_id
        if run.info.status != "FINISHED":
            from mlflow.entities import Metric

            # The time is that of the export, so that a metric that is logged twice is one.
            points = [Metric(name, value, moment, step) for name, step, value in _points(self._facts)]
            for first in range(0, len(points), _BATCH):
                self._client.log_batch(run_id, metrics=points[first : first + _BATCH])
            with contextlib.redirect_stdout(sys.stderr):  # it prints the address of the run, in the middle of our output
                self._client.set_terminated(run_id, status="FINISHED", end_time=moment)
        return run_id


def _points(facts: ExportFacts) -> Iterator[tuple[str, int, float]]:
    """Yield name, step and value of the metrics that training has logged; of several values for one step the last."""
    curves: dict[str, dict[int, float]] = {}
    for entry in facts.log_history:
        step = entry.get("step")
        if not isinstance(step, int) or isinstance(step, bool):
            continue
        for name, value in entry.items():
            if name not in ("step", "epoch") and is_number(value) and (name in curves or len(curves) < _MAX_CURVES):
                curves.setdefault(name, {})[step] = float(value)
    for name, values in curves.items():
        steps = sorted(values)
        shown = [*steps[:: math.ceil(len(steps) / _MAX_POINTS)], steps[-1]]
        yield from ((_metric_name(name), step, values[step]) for step in dict.fromkeys(shown))


def _metric_name(name: str) -> str:
    """Return a name that MLflow accepts."""
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-. /") else "_" for letter in name)
    return kept.strip("/. ").replace("//", "/").replace("..", ".")[:_MAX_NAME] or "metric"


def _tags(facts: ExportFacts) -> dict[str, str]:
    tags = {
        MANIFEST: facts.digest,
        "trainwright.export_uri": facts.uri,
        "trainwright.step": str(facts.step),
        "trainwright.run": facts.run,
        "trainwright.trainjob": facts.trainjob,
        "trainwright.dataset": facts.origin.get("dataset", ""),
        "trainwright.model": facts.origin.get("model", ""),
        "trainwright.data_findings": ", ".join(facts.finding_names),
        **{f"trainwright.metrics.{_metric_name(name)}": repr(value) for name, value in facts.metrics.items()},
    }
    return {name: value for name, value in tags.items() if value}


def _addresses(target: RegistryTarget, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the addresses of the tracking server and of the registry. Without one, MLflow would write to the current folder."""
    tracking = environ.get(TRACKING, "").strip()
    registry = environ.get(REGISTRY, "").strip() or tracking
    if not registry:
        raise RegistrationError(f"{target}: set {TRACKING} to the address of the MLflow server")
    for address in (tracking, registry):
        if address.startswith(("http://", "https://")):
            checked_address(address, environ)
    return tracking or registry, registry


def _exists(get: Any) -> bool:
    from mlflow.exceptions import MlflowException

    try:
        get()
    except MlflowException as error:  # only its absence is an answer
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return False
    return True


def _create(create: Any) -> None:
    """Create something that another process may create at the same time."""
    from mlflow.exceptions import MlflowException

    try:
        create()
    except MlflowException as error:  # another process was faster
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


@contextlib.contextmanager
def _errors(target: RegistryTarget) -> Iterator[None]:
    """Convert the errors of the client."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        code, said = str(error.error_code), without_credentials(error.message)
        if code in ("PERMISSION_DENIED", "UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED"):
            raise RegistrationError(f"{target}: MLflow denies access; check MLFLOW_TRACKING_TOKEN: {said}") from None
        hint = next((hint for words, hint in _HINTS if words in said), "")
        kind = Transient if code in _TRANSIENT else RegistrationError
        raise kind(f"{target}: MLflow reports {one_line(code)}: {hint or said}") from None
    except ImportError as error:
        raise RegistrationError(f"{target}: a library is missing: {without_credentials(error)}; {_DATABASE}") from None
    except OSError as error:
        raise StorageError(f"{target}: MLflow cannot be reached: {without_credentials(error)}") from None
