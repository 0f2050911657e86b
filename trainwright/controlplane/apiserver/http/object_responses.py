"""Builds responses with objects and lists in the negotiated form: full, Table or PartialObjectMetadata."""

from __future__ import annotations

from datetime import datetime

import orjson
from starlette.responses import Response

from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.resources.paths import Target
from trainwright.controlplane.apiserver.storage.pagination import Page
from trainwright.controlplane.apiserver.storage.records import Record
from trainwright.controlplane.apiserver.verbs.results import Result
from trainwright.controlplane.apiserver.wire import media
from trainwright.controlplane.apiserver.wire.api_errors import NotAcceptable
from trainwright.controlplane.apiserver.wire.media import Media
from trainwright.controlplane.apiserver.wire.request_options import parse_include_object
from trainwright.controlplane.apiserver.wire.requests import Request
from trainwright.controlplane.apiserver.wire.responses import negotiated_response
from trainwright.controlplane.apiserver.wire.tables import partial_metadata, table


def object_response(request: Request, target: Target, answer: Result, now: datetime) -> Response:
    """The response for an object or the Status of its deletion. Raises NotAcceptable."""
    wanted = Media.negotiate(request.headers.get("accept"))
    data = answer.data
    if wanted.view and not answer.is_status:
        if wanted.view == "PartialObjectMetadataList":
            raise NotAcceptable(
                f"you requested PartialObjectMetadataList, but the requested object is not a list ({_in_go(target)})"
            )
        if wanted.view == "Table":
            meta = {"resourceVersion": answer.object["metadata"].get("resourceVersion", "")}
            data = orjson.dumps(table(target.kind, [answer.object], meta, now, include=parse_include_object(request)))
        else:
            data = orjson.dumps(partial_metadata(answer.object))
    return negotiated_response(request, wanted, data, 201 if answer.created else 200, answer.warnings)


def page_response(request: Request, target: Target, page: Page, now: datetime) -> Response:
    """The response for one page of a list. Raises NotAcceptable."""
    wanted = Media.negotiate(request.headers.get("accept"))
    if wanted.view == "PartialObjectMetadata":
        raise NotAcceptable(f"you requested PartialObjectMetadata, but the requested object is a list ({_in_go(target)}List)")
    meta: Obj = {"resourceVersion": str(page.revision)}
    if page.token:
        meta["continue"] = page.token
    elif target.strategy.custom and not wanted.view:
        meta["continue"] = ""
    if page.remaining is not None:
        meta["remainingItemCount"] = page.remaining
    if wanted.view == "Table":
        objects = [record.object for record in page.records]
        data = orjson.dumps(table(target.kind, objects, meta, now, include=parse_include_object(request)))
    elif wanted.view:
        data = media.encode_list(
            "meta.k8s.io/v1",
            "PartialObjectMetadata",
            meta,
            [orjson.dumps(partial_metadata(record.object)) for record in page.records],
        )
    else:
        data = media.encode_list(
            target.kind.api_version, target.kind.kind, meta, [_item(target, record) for record in page.records]
        )
    return negotiated_response(request, wanted, data, 200, [])


def _item(target: Target, record: Record) -> bytes:
    """A list item; for built-in kinds without apiVersion and kind, as in kube-apiserver."""
    if target.strategy.custom:
        return record.data
    return orjson.dumps({key: value for key, value in record.object.items() if key not in ("apiVersion", "kind")})


def _in_go(target: Target) -> str:
    """The Go type of these objects in kube-apiserver."""
    if target.strategy.custom:
        return "*unstructured.Unstructured"
    return f"*{target.kind.group.partition('.')[0] or 'core'}.{target.kind.kind}"
