"""The embedded API server against recordings of a real one: HTTP requests and kubectl sessions, answer by answer.

What still differs is listed with its reason; a difference that is not listed fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trainwright.controlplane.gates import FeatureGates
from trainwright.controlplane.home import Home
from trainwright.controlplane.plane import ControlPlane

pytestmark = pytest.mark.medium

WIRE = Path(os.environ.get("TRAINWRIGHT_SHARED", "../shared")) / "goldens" / "wire"
HTTP_DIFFERENCES = {
    "create-protobuf": "answers are JSON, also where protobuf is asked for",
    "discovery-aggregated-core": "only subresources that are served are listed: no ephemeralcontainers, proxy, token",
    "discovery-core-v1": "no tokens are issued on request",
    "list-resourceversion": "version 1 is still known: the store keeps more history than the recorded one had left",
    "patch-json": "a real server checks labels four times in a patch, and tells it four times",
    "table-pod-states": "an age in days is counted from the day of the recording",
    "update-immutable-misc": "a merge patch that changes the kind is told that kinds do not match",
    "update-mismatch": "a PUT of another kind is refused when it is read, not by the schema",
}
SESSION_DIFFERENCES = {
    "delete": "kubectl logs a watch that ended within a second, or does not: by timing",
    "describe": "resource quotas and endpoint slices are not described as kubectl describes a server that has them",
    "diff-replace-edit": "the session edits with a text tool that may hit the namespace's name",
    "mistakes": "the kubectl in use may word its own mistakes otherwise than the recorded one",
}


def _slugs(folder: str) -> list[str]:
    return sorted(path.stem for path in (WIRE / folder).glob("*.yaml"))


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = Home(tmp_path_factory.mktemp("wire") / "home")
    plane = ControlPlane(home, gates=FeatureGates(), node=False)
    plane.start()
    yield home.kubeconfig
    plane.stop()


@pytest.fixture(scope="module")
def tools() -> Iterator[tuple[ModuleType, ModuleType, ModuleType]]:
    """The programs beside the recordings that replay and compare them."""
    sys.path.insert(0, str(WIRE.resolve()))
    try:
        import compare
        import record
        import wire
    finally:
        sys.path.pop(0)
    yield wire, record, compare
    for name in ("compare", "record", "wire"):
        sys.modules.pop(name, None)


@pytest.mark.skipif(not _slugs("http"), reason=f"there are no recordings in {WIRE}")
@pytest.mark.parametrize("slug", _slugs("http"))
def test_http(slug: str, kubeconfig: Path, tools: tuple[Any, Any, Any]) -> None:
    wire, record, compare = tools
    recorded = wire.load(WIRE / "http" / f"{slug}.yaml")
    if "compaction" in recorded.get("needs", []):
        pytest.skip("the store of a test that has just begun remembers everything")
    steps = [{key: value for key, value in step.items() if key != "expected"} for step in recorded["steps"]]
    replayed = record.record(dict(recorded, steps=steps), wire.Server(str(kubeconfig)))
    found = compare.differences(recorded, replayed)
    if found and slug in HTTP_DIFFERENCES:
        pytest.xfail(HTTP_DIFFERENCES[slug])
    assert not found, "\n".join(found)


@pytest.mark.skipif(not _slugs("kubectl"), reason=f"there are no recordings in {WIRE}")
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("slug", _slugs("kubectl"))
def test_kubectl(slug: str, kubeconfig: Path) -> None:
    program = [sys.executable, "kubectl_session.py", "--check", "--dir", "kubectl"]
    arguments = ["--kubeconfig", str(kubeconfig), "--kubectl", str(shutil.which("kubectl")), slug]
    done = subprocess.run([*program, *arguments], cwd=WIRE, capture_output=True, text=True, timeout=120)
    if done.returncode and slug in SESSION_DIFFERENCES:
        pytest.xfail(SESSION_DIFFERENCES[slug])
    assert done.returncode == 0, done.stdout + done.stderr
