"""A list as its options want it: at which version, of which objects, from where on and how many."""

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
from trainwright.controlplane.apiserver.wire.list_options import ListOptions, too_large, version_number


def list_page(store: Store, kind: Kind, namespace: str | None, options: ListOptions) -> Page:
    """The objects that match, or a page of them. Raises BadRequest, Expired, Timeout (for a version of the future)."""
    selection = Selection.parse(strategy_of(kind), options.label_selector, options.field_selector)
    records, revision = _candidates(store, stored_kind(kind), namespace, options, selection)
    if not selection.everything or selection.view:
        records = [shown for shown in map(selection.shown, records) if shown is not None]
    if options.token:
        _, last = pagination.parse_token(options.token, namespace)
        records = [record for record in records if record.key > last]
    # As kube-apiserver's watch cache does: version 0 is answered whole, whatever the limit.
    limit = 0 if options.resource_version == "0" else options.limit
    return pagination.paginate(records, revision, limit, namespace, counted=selection.everything)


def _candidates(
    store: Store, kind: Kind, namespace: str | None, options: ListOptions, selection: Selection
) -> tuple[Records, int]:
    """The objects that may be selected, at the version that the options ask for."""
    if options.token:
        revision, last = pagination.parse_token(options.token, namespace)
        if revision == pagination.ANY_VERSION:
            return store.list(kind.resource, namespace, label=selection.indexed)
        if revision > store.revision:
            raise too_large(revision, store.revision)
        try:
            return store.list_at(kind.resource, namespace, revision), revision
        except Expired as error:
            raise pagination.expired(last, namespace) from error
    if options.resource_version in ("", "0"):
        return store.list(kind.resource, namespace, label=selection.indexed)
    try:
        wanted = version_number(options.resource_version)
    except ApiError as error:
        raise BadRequest(f"invalid resource version: {error}") from None
    if wanted > store.revision:
        raise too_large(wanted, store.revision)
    if options.match != "Exact" and not (options.limit and not options.match):
        return store.list(kind.resource, namespace, label=selection.indexed)
    try:
        return store.list_at(kind.resource, namespace, wanted), wanted
    except Expired as error:
        raise Expired("The resourceVersion for the provided list is too old.") from error
