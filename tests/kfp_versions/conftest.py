"""The environment of each minor of kfp, the compiled files of each, and a cluster for their steps; each made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kfp_environment import MINORS, Compiled, KfpEnvironment, kfp_environment, read_compiled
from support.built_wheel import unpacked_wheel
from support.client_environments import Unavailable
from support.fast_training_cluster import Runs, running


@pytest.fixture(scope="package")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="package", params=MINORS)
def kfp(request: pytest.FixtureRequest, installed: Path) -> KfpEnvironment:
    try:
        return kfp_environment(request.param, installed)
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="package")
def compiled(kfp: KfpEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """What this minor compiles, by file."""
    folder = tmp_path_factory.mktemp("compiled")
    printed = kfp.run("-m", "trainwright.pipelines.build", str(folder))
    assert sorted(printed.splitlines()) == sorted(map(str, folder.iterdir()))
    return read_compiled(folder)


@pytest.fixture(scope="package")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with running(tmp_path_factory.mktemp("cluster")) as runs:
        yield runs
