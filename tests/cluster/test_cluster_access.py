"""Which right a refused request needed, told where the server does not tell it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.kinds import ALL, Kind
from trainwright.cluster.refusals import Permission, permission_for


@given(st.sampled_from(ALL), st.sampled_from(["", "one"]), st.sampled_from(["", "team"]))
def test_every_path_of_ours_is_read_back(kind: Kind, name: str, namespace: str) -> None:
    right = permission_for("get", kind.path(namespace or None, name or None))
    scope = namespace if kind.namespaced else ""
    assert right == Permission("get" if name else "list", kind.resource, scope)
