"""A cluster of whose objects only a part is kept, as soon as they come: of ten thousand, whole ones would fill the memory once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster, Listing, WatchEvent


class Keeping:
    """Lists and watches `cluster`; every object is `keep` of what came. What a `Reflector` asks, and no more."""

    def __init__(self, cluster: Cluster, keep: Callable[[Obj], Obj]):
        self._cluster, self._keep = cluster, keep

    def list(self, kind: Kind, namespace: str | None = None, **selectors: str) -> Listing:
        """Page by page where the cluster can."""
        pages = getattr(self._cluster, "pages", None)
        if pages is None:
            whole = self._cluster.list(kind, namespace, **selectors)
            return Listing([self._keep(item) for item in whole.items], whole.resource_version)
        items: list[Obj] = []
        version = ""
        for page in pages(kind, namespace, **selectors):
            items.extend(map(self._keep, page.items))
            version = version or page.resource_version
        return Listing(items, version)

    def watch(self, kind: Kind, namespace: str | None = None, **more: Any) -> Iterator[WatchEvent]:
        """A bookmark comes as it is."""
        for event in self._cluster.watch(kind, namespace, **more):
            yield event if event.type == "BOOKMARK" else WatchEvent(event.type, self._keep(event.object))
