"""A server with the API of Kubeflow Pipelines for each test, the command line in this process, and a tiny pipeline."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from servers.kfp_api_server import KfpApiServer, kfp_api_server
from support.command_line import run  # noqa: F401  fixture

from trainwright.backoff import Backoff
from trainwright.cluster.connect import NoCluster
from trainwright.pipeline_runs import program
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.server import RetryPolicy
from trainwright.pipeline_runs.source import compile_pipeline

TINY = '''
from kfp import dsl


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def add(a: int, b: float) -> float:
    return a + b


@dsl.component(base_image="python:3.11")
def describe(total: float, words: list, options: dict, loud: bool) -> str:
    if options.get("fail"):
        raise ValueError("asked to fail")
    return f"{total} {words} {loud}"


@dsl.pipeline(name="tiny", description="Adds and describes.")
def tiny(a: int, b: float = 0.5, words: list = [], options: dict = {}, loud: bool = False, label: str = "2e-4") -> str:
    """Add.

    Args:
        a: The first number.
    """
    with dsl.If(a != 0, name="not-zero"):
        describe(total=1.0, words=words, options=options, loud=loud)
    return describe(total=add(a=a, b=b).output, words=words, options=options, loud=loud).output
'''


@pytest.fixture
def kfp() -> Iterator[KfpApiServer]:
    with kfp_api_server() as server:
        yield server
    assert server.unknown_keys == [], "a message has keys that the API does not have"


def no_cluster() -> NoReturn:
    """The cluster of a developer's kubeconfig is none of the tests'."""
    raise NoCluster("no cluster is configured")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waits of seconds, and nothing of the environment in which the tests are run."""
    for name in ("KF_PIPELINES_ENDPOINT", "KFP_EXISTING_TOKEN", "KF_PIPELINES_SA_TOKEN_PATH", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("KF_PIPELINES_DEFAULT_EXPERIMENT_NAME", raising=False)
    monkeypatch.setattr("trainwright.pipeline_runs.step_logs.connect", no_cluster)
    quick = Backoff(0.01, 0.05)
    monkeypatch.setattr("trainwright.pipeline_runs.server.RETRY_POLICY", RetryPolicy(2.0, backoff=quick))
    monkeypatch.setattr("trainwright.pipeline_runs.api_calls.READ_SECONDS", 1.0)
    monkeypatch.setattr("trainwright.pipeline_runs.runs.LOOK_UP_SECONDS", (0.01, 0.05, 0.5))
    monkeypatch.setattr("trainwright.pipeline_runs.runs.UNCHANGED", quick)
    monkeypatch.setattr("trainwright.pipeline_runs.runs.OUTAGE", RetryPolicy(5.0, 0.3, quick))


@pytest.fixture
def compiles_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compile in this process, which imports kfp once, for tests of what compiled pipelines look like."""

    def run_in_this_process(command: list[str], **_: object) -> int:
        program.main(Path(command[-1]))
        return 0

    monkeypatch.setattr("trainwright.pipeline_runs.source.run_in_group", run_in_this_process)
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules = {*sys.modules}
    with warnings.catch_warnings():
        yield
    for name in {"flow", "pipeline_file"} & sys.modules.keys() - modules:
        del sys.modules[name]


@pytest.fixture(scope="session")
def tiny_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tiny") / "tiny_pipeline.py"
    file.write_text(TINY, "utf-8")
    return file


@pytest.fixture(scope="session")
def tiny(tiny_source: Path) -> CompiledPipeline:
    return compile_pipeline(str(tiny_source))


@pytest.fixture(scope="session")
def tiny_yaml(tiny: CompiledPipeline, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("compiled") / "tiny.yaml"
    file.write_text(tiny.text, "utf-8")
    return str(file)
