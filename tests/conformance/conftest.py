"""A cluster that runs pods, and environments with foreign clients, each made once a session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from outcomes import Run, run_script
from support.client_environments import Unavailable, client_environment
from support.cluster_under_test import cluster

_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR")


@pytest.fixture(scope="session")
def working_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a cluster with a node."""
    with cluster(tmp_path_factory.mktemp("working"), node=True) as kubeconfig:
        yield kubeconfig


@pytest.fixture(scope="session")
def checked(working_cluster: Path) -> Callable[..., Run]:
    """Runs a script's checks with the client that the requirements name; a script and client once a session."""
    runs: dict[tuple[str, str], Run] = {}

    def check(script: str, name: str, *requirements: str, **variables: str) -> Run:
        if (script, name) not in runs:
            try:
                python = client_environment(name, list(requirements))
            except Unavailable as error:
                pytest.skip(str(error))
            base = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
            runs[script, name] = run_script(python, script, working_cluster, variables={**base, **variables})
        return runs[script, name]

    return check
