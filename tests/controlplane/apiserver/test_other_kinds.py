"""Objects of another kind than the path says, and metadata that is wrong: in the words, and as often, as a cluster says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainwright.api.errors import ApiError
from trainwright.api.kinds import CONFIG_MAP, EVENT, JOB, LEASE, LIMIT_RANGE, POD, TRAINJOB, Kind
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire import media

Manifest = Callable[..., dict[str, Any]]
SECRET = {"kind": "Secret", "data": {"k": "v"}}


def refused(call: Callable[[], Any]) -> dict[str, Any]:
    with pytest.raises(ApiError) as error:
        call()
    return error.value.status()


@pytest.mark.parametrize(
    ("kind", "change", "code", "text"),
    [
        (CONFIG_MAP, {"kind": "Job", "apiVersion": "batch/v1"}, 400, 'Job in version "v1" cannot be handled as a ConfigMap: '),
        (CONFIG_MAP, {"kind": "Foo"}, 400, 'no kind "Foo" is registered for version "v1" in scheme'),
        (CONFIG_MAP, {"apiVersion": "apps/v1"}, 400, 'no kind "ConfigMap" is registered for version "apps/v1" in scheme'),
        (CONFIG_MAP, {"kind": "Secret"}, 400, "converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
        (CONFIG_MAP, SECRET, 400, "illegal base64 data at input byte 0"),
        (TRAINJOB, {"kind": "JobSet"}, 422, 'JobSet.trainer.kubeflow.org "a" is invalid: kind: Invalid value: "JobSet": must be'),
        (TRAINJOB, {"apiVersion": "e.com/v1"}, 400, "the API version in the data (e.com/v1) does not match the expected API"),
    ],
)
def test_created(kind: Kind, change: Any, code: int, text: str, server: ResourceServer, manifest: Manifest) -> None:
    status = refused(lambda: server.create(kind, "default", {**manifest(kind, "a"), **change}))
    assert status["code"] == code
    assert text in status["message"]


def test_patched(server: ResourceServer, manifest: Manifest) -> None:
    """What the patch made is read; a strategic patch is merged into what is known, and its kind is not read."""
    server.create(CONFIG_MAP, "default", {**manifest(CONFIG_MAP, "a"), "data": {"k": "v"}})
    status = refused(lambda: server.patch(CONFIG_MAP, "default", "a", {"kind": "Secret"}, media.MERGE))
    assert (status["code"], status["details"]["causes"][0]["field"]) == (422, "patch")
    assert status["message"].startswith(' "" is invalid: patch: Invalid value: "')
    status = refused(lambda: server.patch(CONFIG_MAP, "default", "a", {"metadata": {"labels": {"a": 1}}}, media.MERGE))
    assert "json: cannot unmarshal number into Go struct field" in status["details"]["causes"][0]["message"]
    assert server.patch(CONFIG_MAP, "default", "a", {"kind": "Secret"}, media.STRATEGIC).object["kind"] == "ConfigMap"


@pytest.mark.parametrize(
    ("kind", "times"), [(CONFIG_MAP, 4), (POD, 4), (JOB, 4), (TRAINJOB, 3), (LEASE, 3), (LIMIT_RANGE, 3), (EVENT, 2)]
)
def test_a_wrong_label_is_told_as_often_as_it_is_looked_at(
    kind: Kind, times: int, server: ResourceServer, manifest: Manifest
) -> None:
    fields = {"involvedObject": {"namespace": "default"}} if kind == EVENT else {}
    server.create(kind, "default", manifest(kind, "a", **fields))
    status = refused(lambda: server.patch(kind, "default", "a", {"metadata": {"labels": {"t~t": "z"}}}, media.MERGE))
    assert [cause["field"] for cause in status["details"]["causes"]] == ["metadata.labels"] * times
    assert status["message"].count("t~t") == 1
    status = refused(lambda: server.create(kind, "default", manifest(kind, "b", metadata={"labels": {"t~t": "z"}}, **fields)))
    assert len(status["details"]["causes"]) == 1
