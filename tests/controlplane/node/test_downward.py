"""The downward API: fields as text, and amounts of resources divided and rounded up."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainwright.api.quantities import parse_quantity
from trainwright.controlplane.node.downward import field_text, resource_text

POD: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "labels": {"b": "2", "a": "1"},
        "annotations": {"note.example/x": 'hello "there"\n\tback\\slash \u00e9 \u200b \x01\x7f', "it's": "y"},
    },
    "spec": {
        "nodeName": "n",
        "serviceAccountName": "sa",
        "containers": [
            {"name": "main", "resources": {"limits": {"cpu": "1500m", "hugepages-2Mi": "4Mi"}, "requests": {"cpu": "250m"}}}
        ],
        "initContainers": [{"name": "init", "resources": {"limits": {"memory": "64Mi"}}}],
    },
    "status": {
        "podIP": "127.9.0.1",
        "podIPs": [{"ip": "127.9.0.1"}, {"ip": "fd00::1"}],
        "hostIP": "10.0.0.1",
        "hostIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::2"}],
    },
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("metadata.labels", 'a="1"\nb="2"'),
        ("metadata.annotations", 'it\'s="y"\nnote.example/x="hello \\"there\\"\\n\\tback\\\\slash \u00e9 \\u200b \\x01\\x7f"'),
        ("metadata.labels['a']", "1"),
        ("metadata.labels['no']", ""),
        ("metadata.annotations['it's']", "y"),
        ("spec.nodeName", "n"),
        ("spec.serviceAccountName", "sa"),
        ("status.hostIP", "10.0.0.1"),
        ("status.hostIPs", "10.0.0.1,fd00::2"),
        ("status.podIP", "127.9.0.1"),
        ("status.podIPs", "127.9.0.1,fd00::1"),
        ("metadata.name['x']", 'ERROR fieldPath "metadata.name" does not support subscript'),
        ("spec.hostname", "ERROR unsupported fieldPath: spec.hostname"),
        ("", "ERROR unsupported fieldPath: "),
    ],
)
def test_fields(path: str, value: str) -> None:
    try:
        found = field_text(POD, path)
    except ValueError as error:
        found = f"ERROR {error}"
    assert found == value


ALLOCATABLE = {"cpu": "6", "memory": "10Gi", "ephemeral-storage": "100Gi", "hugepages-2Mi": "8Mi"}


@pytest.mark.parametrize(
    ("resource", "divisor", "container", "value"),
    [
        ("limits.cpu", None, "main", "2"),
        ("limits.cpu", "0", "main", "2"),
        ("limits.cpu", "1m", "main", "1500"),
        ("requests.cpu", "1m", "main", "250"),
        ("requests.cpu", None, "main", "1"),
        ("requests.memory", "1Mi", "main", "0"),
        ("limits.memory", "1Mi", "init", "64"),
        ("limits.memory", "1M", "init", "68"),
        ("limits.memory", "1Gi", "main", "10"),
        ("limits.ephemeral-storage", "1Gi", "main", "100"),
        ("limits.hugepages-2Mi", "1Mi", "main", "4"),
        ("limits.hugepages-2Mi", "1Mi", "init", "0"),
        ("limits.nvidia.com/gpu", None, "main", "ERROR unsupported container resource : limits.nvidia.com/gpu"),
        ("cpu", None, "main", "ERROR unsupported container resource : cpu"),
        ("limits.cpu", None, "none", "ERROR container none not found"),
    ],
)
def test_resources(resource: str, divisor: str | None, container: str, value: str) -> None:
    reference = {"resource": resource, "containerName": container} | ({"divisor": divisor} if divisor else {})
    try:
        found = resource_text(POD, reference, lambda: ALLOCATABLE)
    except ValueError as error:
        found = f"ERROR {error}"
    assert found == value


def test_a_pods_own_limit_stands_before_the_nodes() -> None:
    pod = {"spec": {"resources": {"limits": {"cpu": "3"}}, "containers": []}}
    found = {group: resource_text(pod, {"resource": f"limits.{group}"}, lambda: ALLOCATABLE, {}) for group in ("cpu", "memory")}
    assert found == {"cpu": "3", "memory": str(10 * 2**30)}


NUMBERS = st.integers(min_value=0, max_value=10**6).map(str) | st.from_regex(r"[0-9]{1,4}\.[0-9]{1,3}", fullmatch=True)
SUFFIXES = st.sampled_from(["n", "u", "m", "", "k", "M", "G", "T", "Ki", "Mi", "Gi", "e3", "e-3"])
QUANTITIES = st.tuples(NUMBERS, SUFFIXES).map("".join)


@pytest.mark.medium
@given(amount=QUANTITIES, divisor=QUANTITIES)
def test_property_the_result_is_the_least_whole_number_that_is_enough(amount: str, divisor: str) -> None:
    wanted, part = Fraction(parse_quantity(amount).value), Fraction(parse_quantity(divisor).value)
    assume(wanted and part)
    container = {"resources": {"limits": {"memory": amount}}}
    found = int(resource_text({"spec": {}}, {"resource": "limits.memory", "divisor": divisor}, dict, container))
    assert found * part >= wanted > (found - 1) * part
