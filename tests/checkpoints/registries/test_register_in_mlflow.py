"""A registration in MLflow is one model and one version of the export, whatever fails in between. The store is a real one."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from failures import failure_of
from support.on_first_use import OnFirstUse

from trainwright.checkpoints.catalog import read_pins
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.registries.register import register_export
from trainwright.checkpoints.registries.registration import Registration, RegistrationError, RegistrationOptions
from trainwright.storage.errors import StorageError

if importlib.util.find_spec("mlflow") is None or importlib.util.find_spec("sqlalchemy") is None:
    pytest.skip("needs the extra `mlflow`, and sqlalchemy and alembic for a store on sqlite", allow_module_level=True)

mlflow = OnFirstUse("mlflow")
exceptions = OnFirstUse("mlflow.exceptions")

pytestmark = pytest.mark.medium

MakeExport = Callable[..., str]
EFFECTS = (
    "get_registered_model",
    "create_registered_model",
    "search_model_versions",
    "create_model_version",
    "set_registered_model_alias",
    "get_experiment_by_name",
    "create_experiment",
    "search_runs",
    "create_run",
    "log_batch",
    "set_terminated",
)
"""The calls of the client that a registration makes."""


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with its tables, which take seconds to create."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"
    mlflow.MlflowClient(uri, uri).search_registered_models()
    return uri


@pytest.fixture
def client(database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[mlflow.MlflowClient]:
    monkeypatch.chdir(tmp_path)  # runs have their artifacts in the current folder
    client = mlflow.MlflowClient(database, database)
    yield client
    for model in client.search_registered_models():
        client.delete_registered_model(model.name)


@pytest.fixture
def register(client: mlflow.MlflowClient, database: str, export_uri: str) -> Callable[..., Registration]:
    def run(uri: str = export_uri, *, to: str = "mlflow://llama", **options: Any) -> Registration:
        return register_export(uri, to, options=RegistrationOptions(**options), environ={"MLFLOW_TRACKING_URI": database})

    return run


def test_the_version_refers_to_the_export_and_has_its_digest(client: mlflow.MlflowClient, register: Any, export_uri: str) -> None:
    registration = register(alias="champion")
    digest = open_export(export_uri).manifest.digest
    assert registration == Registration("mlflow", "llama", "1", "models:/llama/1", digest, existed=False)
    (version,) = client.search_model_versions("name = 'llama'")
    assert version.source == export_uri
    assert version.tags["trainwright.manifest"] == digest
    assert (version.tags["trainwright.run"], version.tags["trainwright.step"]) == ("llama-sft", "5")
    assert version.tags["trainwright.metrics.eval_loss"] == "1.5"
    assert client.get_model_version_by_alias("llama", "champion").version == version.version


def test_a_second_registration_returns_the_first(
    client: mlflow.MlflowClient, register: Any, make_export: MakeExport, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = register(alias="champion")
    register(make_export(6), alias="champion")
    assert str(client.get_model_version_by_alias("llama", "champion").version) == "2"
    monkeypatch.delattr(mlflow.MlflowClient, "create_model_version")
    assert register(alias="champion") == Registration(**{**vars(first), "existed": True})
    assert str(client.get_model_version_by_alias("llama", "champion").version) == "1"
    assert len(client.search_model_versions("name = 'llama'")) == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_whichever_call_fails_the_next_registration_completes_it(
    client: mlflow.MlflowClient, register: Any, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    register(to=f"mlflow://model-{when}", alias="champion", log_run=True)
    requests = calls.count
    assert requests >= len(EFFECTS)
    for number in range(requests):
        model = f"model-{when}-{number}"
        calls.begin(number, when)
        failure = failure_of(lambda model=model: register(to=f"mlflow://{model}", alias="champion", log_run=True))
        assert not failure or "scripted" in failure
        calls.begin(-1, "")
        register(to=f"mlflow://{model}", alias="champion", log_run=True)
        (version,) = client.search_model_versions(f"name = '{model}'")
        experiment = client.get_experiment_by_name(model)
        assert experiment is not None
        (run,) = client.search_runs([experiment.experiment_id])
        assert (version.run_id, run.info.status) == (run.info.run_id, "FINISHED")
        losses = [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, "loss")]
        assert losses == [(1, 2.5), (3, 1.75), (5, 1.25)]
        assert client.get_model_version_by_alias(model, "champion").version == version.version


class Calls:
    """Counts the calls of the client, and lets one fail before or after it has an effect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.count, self._number, self._when = 0, -1, ""
        for name in EFFECTS:
            monkeypatch.setattr(mlflow.MlflowClient, name, self._failing(getattr(mlflow.MlflowClient, name)))

    def begin(self, number: int, when: str) -> None:
        self.count, self._number, self._when = 0, number, when

    def _failing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            fails = self.count == self._number
            self.count += 1
            if fails and self._when == "before":
                raise exceptions.MlflowException("scripted")
            result = real(*args, **kwargs)
            if fails:
                raise exceptions.MlflowException("scripted")
            return result

        return call


def test_of_two_processes_one_version_remains(
    client: mlflow.MlflowClient, register: Any, export_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = mlflow.MlflowClient.create_model_version

    def overtaken(self: mlflow.MlflowClient, *args: Any, **kwargs: Any) -> Any:
        real(self, *args, **kwargs)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(mlflow.MlflowClient, "create_model_version", overtaken)
    registration = register(alias="champion")
    assert (registration.version, registration.existed) == ("1", True)
    assert [int(version.version) for version in client.search_model_versions("name = 'llama'")] == [1]


def test_a_registered_export_is_pinned(register: Any, export_uri: str) -> None:
    register()
    assert list(read_pins(open_export(export_uri).store.parent())["checkpoint-5"]) == ["registered in mlflow://llama"]


def test_an_alias_that_mlflow_does_not_allow_is_an_error(register: Any) -> None:
    with pytest.raises(RegistrationError, match="MLflow reports INVALID_PARAMETER_VALUE"):
        register(alias="v1")


def test_long_histories_are_thinned_and_odd_names_kept_legal(
    client: mlflow.MlflowClient, register: Any, make_export: MakeExport
) -> None:
    import json

    history = [{"step": step, "loss": 1.0 / step, "a|b\n!": 1.0} for step in range(1, 5001)]
    state = json.dumps({"global_step": 5000, "log_history": history}).encode()
    register(make_export(5000, **{"trainer_state.json": state}), to="mlflow://long", log_run=True)
    experiment = client.get_experiment_by_name("long")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    logged = client.get_metric_history(run.info.run_id, "loss")
    assert 1000 < len(logged) <= 2001
    assert max(each.step for each in logged) == 5000
    assert set(run.data.metrics) == {"loss", "a_b__"}


def test_output_of_the_mlflow_client_goes_to_stderr(
    register: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = mlflow.MlflowClient.set_terminated

    def printing(*args: Any, **kwargs: Any) -> None:
        print("View run at http://127.0.0.1")  # as it does with a server
        real(*args, **kwargs)

    monkeypatch.setattr(mlflow.MlflowClient, "set_terminated", printing)
    register(log_run=True)
    captured = capsys.readouterr()
    assert "View run" in captured.err
    assert captured.out == ""


def test_without_an_address_nothing_is_written_to_the_current_folder(export_uri: str, tmp_path: Path) -> None:
    with pytest.raises(RegistrationError, match="set MLFLOW_TRACKING_URI"):
        register_export(export_uri, "mlflow://llama", environ={})


def test_plain_http_to_another_machine_is_refused(export_uri: str) -> None:
    with pytest.raises(StorageError, match="plain http is refused"):
        register_export(export_uri, "mlflow://llama", environ={"MLFLOW_TRACKING_URI": "http://mlflow.example.com"})
