"""Implements list requests: resource version, selectors, limit and continue token."""

from __future__ import annotations

from trainwright.api.errors import ApiError, BadRequest, Expired
from trainwright.api.kinds import Kind
from trainwright.controlplane.apiserver.resources.registry import strategy_of
from trainwright.controlplane.apiserver.storage import pagination
from trainwright.controlplane.apiserver.storage.collection import Records
from trainwright.controlplane.apiserver.storage.pagination import Page
from trainwright.controlplane.apiserver.storage.selection import Selection
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.storage.views import stored_kind
from trainwright.controlplane.apiserver.wire.requests import ListOptions, parse_resource_version, resource_version_too_large


def list_page(store: Store, kind: Kind, namespace: str | None, options: ListOptions) -> Page:
    """One page of the matching objects. Raises BadRequest, Expired, Timeout (for a future resource version)."""
    selection = Selection.parse(strategy_of(kind), options.label_selector, options.field_selector)
    records, revision = _candidates(store, stored_kind(kind), namespace, options, selection)
    if not selection.everything or selection.view:
        records = [shown for shown in map(selection.select, records) if shown is not None]
    if options.continue_token:
        _, last = pagination.parse_token(options.continue_token, namespace)
        records = [record for record in records if record.key > last]
    # Like kube-apiserver's watch cache, ignore the limit for resource version 0.
    limit = 0 if options.resource_version == "0" else options.limit
    return pagination.paginate(records, revision, limit, namespace, counted=selection.everything)


def _candidates(
    store: Store, kind: Kind, namespace: str | None, options: ListOptions, selection: Selection
) -> tuple[Records, int]:
    """The objects to select from, at the requested resource version."""
    if options.continue_token:
        revision, last = pagination.parse_token(options.continue_token, namespace)
        if revision == pagination.ANY_VERSION:
            return store.list(kind.resource, namespace, label=selection.indexed_label)
        if revision > store.revision:
            raise resource_version_too_large(revision, store.revision)
        try:
            return store.list_at(kind.resource, namespace, revision), revision
        except Expired as error:
            raise pagination.expired(last, namespace) from error
    if options.resource_version in ("", "0"):
        return store.list(kind.resource, namespace, label=selection.indexed_label)
    try:
        wanted = parse_resource_version(options.resource_version)
    except ApiError as error:
        raise BadRequest(f"invalid resource version: {error}") from None
    if wanted > store.revision:
        raise resource_version_too_large(wanted, store.revision)
    if options.resource_version_match != "Exact" and not (options.limit and not options.resource_version_match):
        return store.list(kind.resource, namespace, label=selection.indexed_label)
    try:
        return store.list_at(kind.resource, namespace, wanted), wanted
    except Expired as error:
        raise Expired("The resourceVersion for the provided list is too old.") from error
