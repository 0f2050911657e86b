"""Any number and any text, in every field that holds a number or a quantity, is stored or refused: never a 500."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hostile
import orjson
import pytest
from hostile import Ask, InProcess, path_of, served, valid
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.admission.specs import ADMISSION_SPECS
from trainwright.api.kinds import CONFIG_MAP, JOB, POD, TRAINING_RUNTIME, TRAINJOB, Kind
from trainwright.api.schema.types import Integer, IntOrString, ListOf, MapOf, Quantity, Schema, Struct

Place = tuple[str | int, ...]
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
HUGE = "9" * 5000
LITERALS = [
    *('"1e99"', "1e99", "1e308", "1e400", "-1e308", "1e-400", "NaN", "Infinity", "-Infinity", HUGE, f"-{HUGE}", "9" * 300),
    *(f'"{HUGE}"', f'"-{HUGE}"', f'"0.{HUGE}"', f'"{HUGE}Ei"', f'"{HUGE}m"', f'"1E{HUGE}"', '"9e90"', '"1e-999999999"'),
    *(str(2**31), str(2**63 - 1), str(2**63), str(2**64), str(-(2**63)), "0.5", "-0.0", "true", "null", "[]", "{}", '"²"'),
]
"""JSON, and what some take for JSON."""
literals = st.sampled_from(LITERALS) | (st.text() | st.floats() | st.integers()).map(lambda value: hostile.dumps(value).decode())


def places(schema: Schema, path: Place = ()) -> Iterator[Place]:
    """The path of each field that holds a number or a quantity."""
    match schema:
        case Quantity() | Integer() | IntOrString():
            yield path
        case Struct():
            for name, inner in schema.fields.items():
                if len(path) < 20:
                    yield from places(inner, (*path, name))
        case ListOf():
            yield from places(schema.item, (*path, 0))
        case MapOf():
            yield from places(schema.value, (*path, "cpu"))


PLACES = [(spec.kind, path) for spec in ADMISSION_SPECS.values() for path in places(spec.schema)]
"""Some thousand; the same parts of a pod appear in several kinds."""


def with_value(obj: Any, path: Place, value: Any) -> Any:
    """A copy of `obj` with the value at the path; what is missing on the way is made."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(key, int):
        elements = obj if isinstance(obj, list) and obj else [None]
        return [with_value(elements[0], rest, value), *elements[1:]]
    return {
        **(obj if isinstance(obj, dict) else {}),
        key: with_value((obj or {}).get(key) if isinstance(obj, dict) else None, rest, value),
    }


@pytest.fixture(scope="module")
def peer() -> Iterator[InProcess]:
    with served() as peer:
        yield peer


def body(kind: Kind, path: Place, literal: str) -> bytes:
    return orjson.dumps(with_value(valid(kind), path, "@@")).replace(b'"@@"', literal.encode("utf-8", "surrogatepass"))


def check(peer: InProcess, kind: Kind, path: Place, literal: str) -> None:
    for media in ("application/json", "application/yaml"):
        reply = peer.send(Ask("POST", path_of(kind), body=body(kind, path, literal), headers={"content-type": media}))
        assert reply.status == 201 or 400 <= reply.status < 500, (kind.kind, path, literal[:50], reply)
        if reply.status != 201:
            continue
        for headers in (TABLE, {"accept": "application/yaml"}):
            assert peer.send(Ask("GET", path_of(kind, "a"), headers=headers)).status == 200
        change = orjson.dumps(with_value({}, path, "@@")).replace(b'"@@"', literal.encode("utf-8", "surrogatepass"))
        for below in ("", "status") if kind.status else ("",):
            patch = Ask("PATCH", path_of(kind, "a", below), body=change, headers={"content-type": "application/merge-patch+json"})
            assert peer.send(patch).status < 500, (kind.kind, path, literal[:50])
        peer.server.store.delete(kind.resource, "default" if kind.namespaced else "", "a")


@pytest.mark.medium
@given(st.sampled_from(PLACES), literals)
def test_property_any_number_in_any_field(peer: InProcess, place: tuple[Kind, Place], literal: str) -> None:
    check(peer, *place, literal)


@pytest.mark.medium
@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (POD, ("spec", "containers", 0, "resources", "limits", "cpu")),
        (POD, ("spec", "containers", 0, "resources", "requests", "cpu")),
        (POD, ("spec", "volumes", 0, "emptyDir", "sizeLimit")),
        (JOB, ("spec", "successPolicy", "rules", 0, "succeededIndexes")),
        (TRAINJOB, ("spec", "trainer", "resourcesPerNode", "limits", "cpu")),
        (
            TRAINING_RUNTIME,
            (*["spec", "template", "spec", "replicatedJobs"], 0, *["template", "spec", "template", "spec", "overhead", "cpu"]),
        ),
        (CONFIG_MAP, ("metadata", "generation")),
        (CONFIG_MAP, ("metadata", "annotations", "batch.kubernetes.io/job-completion-index")),
    ],
)
def test_numbers_that_were_found_to_fail(peer: InProcess, kind: Kind, path: Place, literal: str) -> None:
    check(peer, kind, path, literal)


def test_a_trainjob_is_told_why_its_quantity_is_refused(peer: InProcess) -> None:
    """It used to be stored, and no controller could read it."""
    place = ("spec", "trainer", "resourcesPerNode", "limits", "cpu")
    reply = peer.send(Ask("POST", path_of(TRAINJOB), body=body(TRAINJOB, place, '"1e99"')))
    assert reply.status == 400
    assert "denied the request: quantities must match" in reply.status_object["message"]
