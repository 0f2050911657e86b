"""Recorded pods: on the node they end, go their way, tell and print what they did on a kubelet. `make behaviour` runs them too."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubelet_recordings import NOT_HONOURED, differences, played, recordings
from support.shared_folder import reason_without

from trainwright.controlplane.node.isolation.support import isolation_support

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CASES = sorted(case.name for case in (recordings() / "cases").glob("*"))


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the node did with all of them, side by side."""
    support = isolation_support(tmp_path_factory.getbasetemp())
    if not support.available:
        pytest.skip(f"without isolation a pod is not what it is on a kubelet: {support.reason}")
    return played(CASES, tmp_path_factory.mktemp("recordings"))


@pytest.mark.parametrize("name", CASES or [pytest.param("", marks=pytest.mark.skip(reason_without("goldens/kubelet/cases")))])
def test_a_pod_does_what_it_did_on_a_kubelet(name: str, observed: Path, tmp_path: Path) -> None:
    if name in NOT_HONOURED or differences(name, observed) == "":
        return
    # Side by side they compete for the processors: a program that ends at once may then be seen to run.
    assert differences(name, played([name], tmp_path)) == ""
