"""Refusals that the recordings do not hold, in kube-apiserver's words: neighbours of those that they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainwright.api.kinds import CONFIG_MAP, POD

pytestmark = pytest.mark.medium
Manifest = Callable[..., dict[str, Any]]
HOME = "/api/v1/namespaces/default"
AS = "application/json;as={};v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("method", "path", "accept", "code", "text"),
    [
        ("GET", "/pods/p/binding", "", 405, "the server does not allow this method"),
        ("GET", "/pods/p/eviction", "", 405, "the server does not allow this method"),
        ("DELETE", "/pods/p/log", "", 405, "the server does not allow this method"),
        ("GET", "/pods?fieldSelector=spec.x%3D1", "", 400, "field label not supported: spec.x"),
        ("GET", "/events?fieldSelector=x%3D1", "", 400, "field label not supported: x"),
        ("GET", "/configmaps?fieldSelector=x%3D1", "", 400, '"x" is not a known field selector'),
        ("GET", "/persistentvolumeclaims?fieldSelector=name%3D1", "", 400, '"name" is not a known field selector'),
        ("GET", "/configmaps?includeObject=All", "Table", 400, "Unable to convert to Table as requested: includeObject: Invalid"),
        ("GET", "/configmaps", "PartialObjectMetadata", 406, "the requested object is a list (*core.ConfigMapList)"),
        ("GET", "/configmaps/c", "PartialObjectMetadataList", 406, "the requested object is not a list (*core.ConfigMap)"),
        ("GET", "/pods?fieldSelector=status.podIPs%3D1", "", 200, None),
    ],
)
def test_reads(method: str, path: str, accept: str, code: int, text: str | None, peer: Any, manifest: Manifest) -> None:
    peer.server.create(POD, "default", manifest(POD, "p"))
    peer.server.create(CONFIG_MAP, "default", manifest(CONFIG_MAP, "c"))
    headers = {"Accept": AS.format(accept)} if accept else {}
    answer = peer.json(method, HOME + path, **headers)
    assert answer.status == code
    assert text is None or text in answer.body["message"]


@pytest.mark.parametrize(
    ("path", "patch", "sort", "code", "text"),
    [
        ("/pods/p", b'{"spec":{"activeDeadlineSeconds":9}}', "merge", 422, "must be less than or equal to previous value"),
        ("/pods/p", b'{"spec":{"activeDeadlineSeconds":null}}', "merge", 422, "must not update from a positive integer to nil"),
        ("/pods/p", b'{"spec":{"hostname":"h"}}', "merge", 422, "previously negative)\n@@ -"),
        ("/configmaps/c", b'{"metadata":{"resourceVersion":"abc"}}', "merge", 500, 'strconv.ParseUint: parsing "abc"'),
        ("/configmaps/c?fieldValidation=Strict", b'{"data":{"a":"1","a":"2"}}', "merge", 422, 'duplicate field "data.a"'),
        (
            "/configmaps/c?fieldValidation=Strict",
            b'{"data":{"a":"1","a":"2"}}',
            "strategic-merge",
            422,
            'duplicate field "data.a"',
        ),
    ],
)
def test_patches(path: str, patch: bytes, sort: str, code: int, text: str, peer: Any, manifest: Manifest) -> None:
    peer.server.create(POD, "default", manifest(POD, "p", spec={"activeDeadlineSeconds": 5}))
    peer.server.create(CONFIG_MAP, "default", manifest(CONFIG_MAP, "c"))
    answer = peer.json("PATCH", HOME + path, patch, **{"Content-Type": f"application/{sort}-patch+json"})
    assert answer.status == code
    assert text in answer.body["message"]


def test_duplicates_of_a_patch_are_told_in_a_warning(peer: Any, manifest: Manifest) -> None:
    peer.server.create(CONFIG_MAP, "default", manifest(CONFIG_MAP, "c"))
    headers = {"Content-Type": "application/merge-patch+json"}
    answer = peer.json("PATCH", f"{HOME}/configmaps/c", b'{"data":{"a":"1","a":"2"}}', **headers)
    assert (answer.status, answer.body["data"]) == (200, {"a": "2"})
    assert 'duplicate field \\"data.a\\"' in answer.headers["Warning"]


@pytest.mark.parametrize(("body", "code"), [(b"null", 422), (b"[]", 400)])
def test_bodies_that_are_no_objects(body: bytes, code: int, peer: Any) -> None:
    assert peer.json("POST", f"{HOME}/configmaps", body).status == code
