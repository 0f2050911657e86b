"""The effective requests of a pod: a table of Kubernetes' rules, and that more pods never need less."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.quantities import parse_quantity, pod_requests, total_requests


def container(cpu: str | None, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}} if cpu else {}, **more}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container("500m"), container("1")]}, "1500m"),
        ({"containers": [container("500m")], "initContainers": [container("2")]}, "2"),
        (
            {"containers": [container("500m")], "initContainers": [container("300m", restartPolicy="Always"), container("1")]},
            "1300m",
        ),
        ({"containers": [container("2")], "initContainers": [container("300m", restartPolicy="Always")]}, "2300m"),
        ({"containers": [container("500m")], "resources": {"requests": {"cpu": "3"}}}, "3"),
        ({"containers": [container("500m")], "overhead": {"cpu": "250m"}}, "750m"),
        ({"containers": [container(None) | {"resources": {"limits": {"cpu": "1"}}}]}, None),
    ],
)
def test_effective_requests(spec: dict[str, Any], cpu: str | None) -> None:
    found = pod_requests(spec).get("cpu")
    assert (str(found) if found is not None else None) == cpu


amounts = st.integers(0, 4000).map(lambda number: f"{number}m")


@given(st.lists(amounts, max_size=3), st.lists(amounts, max_size=3), st.integers(0, 5))
def test_property_the_sum_is_so_many_times_one_pod(main: list[str], starting: list[str], count: int) -> None:
    spec = {"containers": [container(cpu) for cpu in main], "initContainers": [container(cpu) for cpu in starting]}
    one = pod_requests(spec)
    least = max([sum(int(cpu[:-1]) for cpu in main), *(int(cpu[:-1]) for cpu in starting)])
    assert one.get("cpu", parse_quantity(0)).value * 1000 == least
    total = total_requests([(count, one), (1, one)])
    assert {name: parse_quantity(amount) for name, amount in total.items()} == {n: a * (count + 1) for n, a in one.items()}
