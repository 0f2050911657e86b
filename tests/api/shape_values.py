"""Values made from the shapes themselves: mostly right, now and then wrong in one of the ways that people are."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from trainwright.api.schema.types import AnyValue, Boolean, Integer, IntOrString, ListOf, MapOf, Quantity, Schema, String, Struct

WORDS = st.sampled_from(
    ["a", "node", "demo", "", "A_b", "x" * 64, "x" * 300, "hf://a/b", "team.example.com/ops", "2026-01-02T03:04:05Z", "ä"]
)
NUMBERS = st.sampled_from([0, 1, 2, 100, -1, 2**31, 2**31 - 1, -(2**31), 2**63 - 1, 1.0, 1.5])
AMOUNTS = st.sampled_from([1, 0, 2.5, "1", "500m", "1.5Gi", "-1", "lots", "1e3", "", "1e99999999", ".5", "5."])
ANY = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
LABELS = st.dictionaries(st.sampled_from(["a", "b/c", "A b", "trainer.kubeflow.org/trainjob-ancestor-step"]), WORDS, max_size=2)


LIKELY = {
    "kind": "ClusterTrainingRuntime",
    "apiGroup": "trainer.kubeflow.org",
    "managedBy": "trainer.kubeflow.org/trainjob-controller",
    "storageUri": "hf://org/name",
    "manager": "team.example.com/ops",
    "restartPolicy": "Never",
    "image": "example.com/train:1",
    "completionMode": "Indexed",
    "completions": 2,
    "podReplacementPolicy": "TerminatingOrFailed",
    "groupName": "default",
}
"""What stands in fields whose rules a random word seldom meets."""
ALWAYS = ("restartPolicy", "image")


@st.composite
def objects(draw: Any, schema: Struct, api_version: str, kind: str, wrong: int = 12) -> dict[str, Any]:
    """A whole object of a kind; one in `wrong` values is of any type at all."""
    obj = draw(values(schema, wrong))
    if not isinstance(obj, dict):
        obj = {}
    metadata = (
        {"name": draw(WORDS), "labels": draw(LABELS)}
        if draw(st.integers(0, 3)) == 0
        else {"name": "demo", "namespace": "default"}
    )
    if draw(st.integers(0, 30)) == 0:
        metadata = {name: draw(ANY) for name in ("name", "labels", "finalizers", "ownerReferences")}
    return {**obj, "apiVersion": api_version, "kind": kind, "metadata": metadata}


@st.composite
def values(draw: Any, schema: Schema, wrong: int) -> Any:
    if wrong and draw(st.integers(0, 10 * wrong)) == 0:
        return draw(ANY)
    match schema:
        case Struct():
            return _record(draw, schema, wrong)
        case ListOf():
            size = draw(st.sampled_from([0, 1, 1, 1, 2, 2, 3]))
            return [draw(values(schema.item, wrong)) for _ in range(size)]
        case MapOf():
            return {draw(WORDS): draw(values(schema.value, wrong)) for _ in range(draw(st.integers(0, 2)))}
        case Quantity():
            return draw(AMOUNTS)
        case Integer():
            return draw(NUMBERS)
        case Boolean():
            return draw(st.booleans())
        case IntOrString():
            return draw(NUMBERS | WORDS)
        case String():
            return draw(st.sampled_from(schema.one_of) | WORDS if schema.one_of else WORDS)
        case AnyValue():
            return {}
    return None


def _record(draw: Any, schema: Struct, wrong: int) -> dict[str, Any]:
    optional = [name for name in schema.fields if name not in schema.required]
    chosen = [*schema.required, *(name for name in ALWAYS if name in schema.fields)]
    for _ in range(draw(st.integers(0, 3)) if optional else 0):
        chosen.append(draw(st.sampled_from(optional)))
    if wrong and draw(st.integers(0, 8 * wrong)) == 0:
        chosen = chosen[1:]
    made = {
        name: _field(draw, schema, name, wrong) for name in dict.fromkeys(chosen) if not isinstance(schema.fields[name], AnyValue)
    }
    if wrong and draw(st.integers(0, 8 * wrong)) == 0:
        made[draw(WORDS)] = draw(ANY)
    return made


def _field(draw: Any, schema: Struct, name: str, wrong: int) -> Any:
    if name in LIKELY and draw(st.integers(0, 19)):
        return LIKELY[name]
    if name == "name" and draw(st.integers(0, 9)):
        return draw(st.sampled_from(["node", "a", "b", "c"]))
    return draw(values(schema.fields[name], wrong))
