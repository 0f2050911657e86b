"""Every field of every kind with a value of every wrong type, created, replaced and patched: always an answer, never a crash."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hostile import WRITTEN, Ask, InProcess, served, valid

from trainwright.api.kinds import Kind
from trainwright.controlplane.apiserver.wire.media import APPLY, MERGE

EVERY = (5, "x", [5], {"a": 5}, None, -1, 1.5, "", True, [], ["x"], [[]], [None], {}, {"a": {}}, {"a": None}, 2**63)
IS_FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


def changed(obj: Any, path: tuple[str | int, ...], value: Any) -> Any:
    copy = orjson.loads(orjson.dumps(obj))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return copy


@pytest.fixture
def peer() -> Iterator[InProcess]:
    with served() as peer:
        yield peer


@pytest.mark.medium
@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.resource)
def test_property_every_field_of_every_wrong_type(peer: InProcess, kind: Kind) -> None:
    whole = valid(kind)
    whole["metadata"] |= {
        "finalizers": ["a.b/c"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}],
    }
    extra = [
        ("status",),
        ("metadata", "managedFields"),
        ("metadata", "uid"),
        ("metadata", "generateName"),
        ("metadata", "deletionTimestamp"),
    ]
    collection, one = kind.path("default"), kind.path("default", "a")
    assert peer.send(Ask("POST", collection, body=orjson.dumps(whole))).status == 201
    for number, path in enumerate([*places(whole), *extra]):
        for value in EVERY if IS_FUZZ else EVERY[number % 2 : 4 : 2]:
            broken = changed(whole, path, value)
            asks = [Ask("PUT", one, body=orjson.dumps(broken)), Ask("PUT", f"{one}/status", body=orjson.dumps(broken))]
            asks.append(
                Ask("POST", collection, "dryRun=All", orjson.dumps({**broken, "metadata": {**_metadata(broken), "name": "b"}}))
            )
            for media in (MERGE, APPLY):
                asks.append(
                    Ask(
                        "PATCH",
                        one,
                        "fieldManager=m&force=true" if media == APPLY else "",
                        orjson.dumps(broken),
                        {"content-type": media},
                    )
                )
            for ask in asks:
                assert peer.send(ask).status < 600  # `send` fails for an exception
    assert peer.send(Ask("GET", collection, headers=TABLE)).status == 200


def _metadata(obj: Any) -> dict[str, Any]:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
