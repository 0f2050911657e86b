"""A cluster whose requests a test sees, and may refuse, before they are sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster, DelegatingCluster


class BeforeRequests(DelegatingCluster):
    """Calls `before` with the verb and the kind of each request, which its errors refuse."""

    default_namespace = "default"

    def __init__(self, cluster: Cluster, before: Callable[[str, str], object]):
        super().__init__(cluster)
        self._before = before

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        self._before("get", kind.kind)
        return super().get(kind, name, namespace)

    def list(self, kind: Kind, namespace: str | None = None, **options: Any) -> Any:
        self._before("list", kind.kind)
        return super().list(kind, namespace, **options)

    def watch(self, kind: Kind, namespace: str | None = None, **options: Any) -> Iterator[Any]:
        self._before("watch", kind.kind)
        return super().watch(kind, namespace, **options)

    def create(self, obj: Obj, **options: Any) -> Obj:
        self._before("create", obj["kind"])
        return super().create(obj, **options)

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Any) -> Obj:
        self._before("patch", kind.kind)
        return super().patch(kind, name, patch, namespace, **options)

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **options: Any) -> None:
        self._before("delete", kind.kind)
        super().delete(kind, name, namespace, **options)


def refusing(cluster: Cluster, *verbs: str, kinds: Collection[Kind] = (), error: BaseException | None = None) -> BeforeRequests:
    """Refuse these verbs, on objects of these kinds or of all."""
    assert set(verbs) <= vars(BeforeRequests).keys(), "a verb that is not seen would never be refused"
    names = {kind.kind for kind in kinds}

    def before(verb: str, kind: str) -> None:
        if verb in verbs and (not names or kind in names):
            raise error or Forbidden(f"may not {verb}")

    return BeforeRequests(cluster, before)
