"""Namespaces with Pod Security `restricted` take every pod that the project writes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from support.client_environments import ROOT
from support.pod_security import pods_in, violations

from trainwright.jobs.submit.rbac_manifests import guard_manifests
from trainwright.runtimes import bundled_runtime
from trainwright.runtimes.bundled import catalogue_texts
from trainwright.runtimes.image import PLACEHOLDERS
from trainwright.submission.jobs_client import Mode

OWN = [name.removesuffix(".yaml") for name, text in catalogue_texts().items() if any(word in text for word in PLACEHOLDERS)]


def checked(manifest: Any) -> list[str]:
    pods = list(pods_in(manifest))
    assert pods
    return [violation for pod in pods for violation in violations(pod)]


@pytest.mark.parametrize("name", OWN)
def test_pods_of_our_runtimes(name: str) -> None:
    assert checked(bundled_runtime(name)) == []


def test_the_guard() -> None:
    assert checked(guard_manifests("team", Mode.auto, "controller:1")) == []


@pytest.mark.parametrize(
    "file",
    [file for file in sorted((ROOT / "deploy").rglob("*.yaml")) if "containers:" in file.read_text("utf-8")],
    ids=lambda file: file.name,
)
def test_pods_of_manifests_and_of_the_chart(file: Any) -> None:
    text = file.read_text("utf-8")
    if "{{" not in text:
        assert checked(list(yaml.safe_load_all(text))) == []


def test_a_pod_that_says_nothing_is_refused_for_four_reasons() -> None:
    fields = {violation.partition(": ")[2] for violation in violations({"containers": [{"name": "node"}]})}
    assert fields == {"allowPrivilegeEscalation", "capabilities", "runAsNonRoot", "seccompProfile"}
