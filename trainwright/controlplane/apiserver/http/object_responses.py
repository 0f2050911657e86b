"""Objects and lists as the client wants to see them: whole, as rows of a Table, or their metadata alone."""

from __future__ import annotations

from datetime import datetime

import orjson
from starlette.responses import Response

from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.resources.paths import Target
from trainwright.controlplane.apiserver.storage.pagination import Page
from trainwright.controlplane.apiserver.storage.records import Record
from trainwright.controlplane.apiserver.verbs.answers import Answer
from trainwright.controlplane.apiserver.wire import media
from trainwright.controlplane.apiserver.wire.api_errors import NotAcceptable
from trainwright.controlplane.apiserver.wire.media import Media
from trainwright.controlplane.apiserver.wire.request_options import include
from trainwright.controlplane.apiserver.wire.requests import Request
from trainwright.controlplane.apiserver.wire.responses import negotiated
from trainwright.controlplane.apiserver.wire.tables import partial, table


def object_response(request: Request, target: Target, answer: Answer, now: datetime) -> Response:
    """One object, or the Status of its deletion, in the form that the client asked for."""
    wanted = Media.accepted(request.headers.get("accept"))
    data = answer.data
    if wanted.view and not answer.is_status:
        if wanted.view == "PartialObjectMetadataList":
            raise NotAcceptable(
                f"you requested PartialObjectMetadataList, but the requested object is not a list ({_in_go(target)})"
            )
        if wanted.view == "Table":
            meta = {"resourceVersion": answer.object["metadata"].get("resourceVersion", "")}
            data = orjson.dumps(table(target.kind, [answer.object], meta, now, include=include(request)))
        else:
            data = orjson.dumps(partial(answer.object))
    return negotiated(request, wanted, data, 201 if answer.created else 200, answer.warnings)


def page_response(request: Request, target: Target, page: Page, now: datetime) -> Response:
    """A list, or a page of one. Raises NotAcceptable."""
    wanted = Media.accepted(request.headers.get("accept"))
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
        data = orjson.dumps(table(target.kind, objects, meta, now, include=include(request)))
    elif wanted.view:
        data = media.list_body(
            "meta.k8s.io/v1",
            "PartialObjectMetadata",
            meta,
            [orjson.dumps(partial(record.object)) for record in page.records],
        )
    else:
        data = media.list_body(
            target.kind.api_version, target.kind.kind, meta, [_item(target, record) for record in page.records]
        )
    return negotiated(request, wanted, data, 200, [])


def _item(target: Target, record: Record) -> bytes:
    """An element of a list: for built-in kinds without apiVersion and kind, which the list says for all."""
    if target.strategy.custom:
        return record.data
    return orjson.dumps({key: value for key, value in record.object.items() if key not in ("apiVersion", "kind")})


def _in_go(target: Target) -> str:
    """The name that the type of these objects has in kube-apiserver."""
    if target.strategy.custom:
        return "*unstructured.Unstructured"
    return f"*{target.kind.group.partition('.')[0] or 'core'}.{target.kind.kind}"
