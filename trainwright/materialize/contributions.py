"""Materializes a TrainJob and says for each value who set it: the runtime, the job, a default, or a policy.

It observes the steps of `materialize` instead of repeating them: what changed from one step to the next was set by the step in
between. Values that a policy only copies from the TrainJob are marked beforehand, and count as the job's. The contributors of an
object are a tree of names beside it. Elements of lists are matched by their merge key, so that an inserted element changes nothing
about the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import orjson

from trainwright.api import names
from trainwright.api.admission.admit import admit
from trainwright.api.objects import Obj, copy_of, name_of, named
from trainwright.api.schema.published import struct_named
from trainwright.api.schema.types import ANY_VALUE, ListOf, Schema, part_of
from trainwright.materialize.assembly import TRAINJOB_STEP, build, check_jobset_admission
from trainwright.materialize.draft import Draft, ancestor_of
from trainwright.materialize.go_serialization import JOBSET_SPEC, serialize
from trainwright.materialize.keys import Keys
from trainwright.materialize.runtime_template import CompiledRuntime, compile_runtime
from trainwright.materialize.settings import Settings

RUNTIME, JOB, DEFAULT = "runtime", "job", "default"
"""Contributors; every other one is a policy, by its name."""
_MERGED_BY_VALUE = "resourcesPerNode"
"""A part of the trainer that is not copied but merged and canonicalized: its effect is seen by comparison."""
Contributors = str | dict[str, Any] | list[Any]
"""Shaped like the object: the contributors of its parts, or the name of one for a value. An empty dict or list is a value."""
_MOST_ALIGNED = 2000
"""Elements of lists without merge keys that are aligned with their earlier version; aligning takes quadratic time."""


@dataclass(frozen=True)
class Contribution:
    """An object as `materialize` returns it, and the contributors of its values."""

    object: Obj
    contributors: Contributors


def materialize_with_contributors(
    trainjob: Obj, runtime: Obj, *, settings: Settings | None = None, keys: Keys | None = None
) -> list[Contribution]:
    """Return the objects of `materialize`, in its order, with the contributor of each value.

    A value that a policy set to what it was before counts as set before. Raises Invalid like `materialize`.
    """
    admitted = copy_of(admit(trainjob).object)
    spec = admitted["spec"]
    _mark_part(spec, "trainer", JOB)
    _mark_part(spec, "initializer", JOB)
    observer = _Observer(runtime, compile_runtime(runtime))
    objects = build(admitted, runtime, settings=settings, keys=keys, observe=observer.observe)
    if not objects:
        return []
    plain = copy_of(objects)  # without marks
    check_jobset_admission(plain[-1])
    observer.finish(JOB if "suspend" in trainjob["spec"] else DEFAULT)
    return [Contribution(obj, observer.contributors(obj)) for obj in plain]


def _mark_part(spec: Obj, part: str, contributor: str) -> None:
    if not isinstance(spec.get(part), dict):
        return
    spec[part] = {field: value if field == _MERGED_BY_VALUE else mark(value, contributor) for field, value in spec[part].items()}


class _Observer:
    """Keeps the contributors of a draft up to date, step by step."""

    def __init__(self, runtime: Obj, compiled: CompiledRuntime):
        given = ((runtime.get("spec") or {}).get("template") or {}).get("spec") or {}
        written = serialize(JOBSET_SPEC, given, complete=False)
        metadata = ((compiled.runtime.get("spec") or {}).get("template") or {}).get("metadata") or {}
        self._before: Obj = {
            "spec": compiled.template(),
            "labels": dict(metadata.get("labels") or {}),
            "annotations": dict(metadata.get("annotations") or {}),
            "objects": {},
        }
        self._schema = struct_named("JobSetSpec")
        self._trees: dict[str, Any] = {
            "spec": updated(all_from(RUNTIME, written, self._schema), written, self._before["spec"], DEFAULT, self._schema),
            "labels": all_from(RUNTIME, self._before["labels"]),
            "annotations": all_from(RUNTIME, self._before["annotations"]),
            "objects": {},
        }
        self._content = _content(self._before)
        self._counts: dict[str, tuple[int, str]] = {}
        self._runtime, self._given = runtime, given
        self._jobset = ""

    def observe(self, policy: str, draft: Draft) -> None:
        """Attribute what has changed since the last call to a policy."""
        contributor = policy if policy != TRAINJOB_STEP else JOB
        self._observe_counts(contributor, draft, is_first=policy == TRAINJOB_STEP)
        _mark_part(draft.trainjob["spec"], "trainer", contributor)
        state = self._state(draft)
        content = _content(state)
        if content == self._content:
            return
        trees, before = self._trees, self._before
        for part, schema in (("spec", self._schema), ("labels", ANY_VALUE), ("annotations", ANY_VALUE)):
            trees[part] = updated(trees[part], before[part], state[part], contributor, schema)
        for key, obj in state["objects"].items():
            known = trees["objects"].get(key)
            trees["objects"][key] = (
                all_from(contributor, obj) if known is None else updated(known, before["objects"][key], obj, contributor)
            )
        self._before, self._content = orjson.loads(content), content

    def finish(self, suspended_by: str) -> None:
        """Attribute what the JobSet's policy only writes down: the numbers of pods, and whether the TrainJob is suspended."""
        spec = self._trees["spec"]
        spec["suspend"] = suspended_by
        for job, tree in zip(self._before["spec"].get("replicatedJobs") or [], spec.get("replicatedJobs") or [], strict=True):
            tree["template"]["spec"] |= dict.fromkeys(("parallelism", "completions"), self._counts[job["name"]][1])

    def contributors(self, obj: Obj) -> Contributors:
        """Return the contributors of one of the objects that were built."""
        tree: Contributors = self._trees["objects"][_key(obj)]
        if _key(obj) != self._jobset:
            return tree
        assert isinstance(tree, dict)
        metadata = {
            **tree["metadata"],
            **{part: self._trees[part] for part in ("labels", "annotations") if part in tree["metadata"]},
        }
        return {**tree, "metadata": metadata, "spec": self._trees["spec"]}

    def _state(self, draft: Draft) -> Obj:
        objects = {_key(obj): obj for obj in draft.companions}
        for key, obj in objects.items():
            if obj.get("spec") is draft.jobset_spec:  # its spec is attributed as the draft's
                self._jobset = key
                objects[key] = {**obj, "spec": {}}
        return {"spec": draft.jobset_spec, "labels": draft.labels, "annotations": draft.annotations, "objects": objects}

    def _observe_counts(self, contributor: str, draft: Draft, *, is_first: bool) -> None:
        for pods in draft.pod_sets:
            if is_first:
                self._counts[pods.name] = int(pods.count), self._first_count(pods.job)
                continue
            before, by = self._counts[pods.name]
            by = contributor_of(pods.count, by if pods.count == before else contributor)
            self._counts[pods.name] = int(pods.count), by

    def _first_count(self, job: Obj) -> str:
        """Return whether the number of pods before any policy is the runtime's, or the default."""
        policy = (self._runtime.get("spec") or {}).get("mlPolicy")
        if ancestor_of(job) == names.ANCESTOR_TRAINER and policy is not None:
            return RUNTIME if policy.get("numNodes") else DEFAULT
        given = named(self._given.get("replicatedJobs"), job["name"]) or {}
        spec = (given.get("template") or {}).get("spec") or {}
        return RUNTIME if spec.get("parallelism") else DEFAULT


def _key(obj: Obj) -> str:
    return f"{obj['apiVersion']} {obj['kind']} {name_of(obj)}"


def _content(state: Obj) -> bytes:
    return orjson.dumps(state)


class MarkedText(str):
    """A text that knows its contributor. It remains marked while it is passed on; every text that is derived from it is not."""

    contributor: str


class MarkedNumber(int):
    """A whole number that knows its contributor, see `MarkedText`."""

    contributor: str


def mark(value: Any, contributor: str) -> Any:
    """Return a copy of a JSON-shaped value in which texts and whole numbers are marked; those that are marked keep their marks."""
    if isinstance(value, dict):
        return {key: mark(item, contributor) for key, item in value.items()}
    if isinstance(value, list):
        return [mark(item, contributor) for item in value]
    if isinstance(value, bool | MarkedText | MarkedNumber) or not isinstance(value, str | int):
        return value
    marked = MarkedText(value) if isinstance(value, str) else MarkedNumber(value)
    marked.contributor = contributor
    return marked


def contributor_of(value: Any, otherwise: str) -> str:
    """Return the contributor that a value is marked with."""
    return value.contributor if isinstance(value, MarkedText | MarkedNumber) else otherwise


def all_from(contributor: str, value: Any, schema: Schema = ANY_VALUE) -> Contributors:
    """Return the tree of a value of `schema` that one contributor made, from values that may be marked."""
    if isinstance(value, dict) and value:
        return {key: all_from(contributor, item, part_of(schema, key)) for key, item in value.items()}
    if isinstance(value, list) and value:
        return [all_from(_contributor_of_element(item, schema, contributor), item, _item(schema)) for item in value]
    return contributor_of(value, contributor)


def updated(tree: Contributors, before: Any, after: Any, contributor: str, schema: Schema = ANY_VALUE) -> Contributors:
    """Return the tree of a value after a change by one contributor: changed and marked parts are attributed anew.

    Args:
        tree: the contributors of `before`.
        before: the value before the change.
        after: the value after it, whose texts and numbers may be marked.
        contributor: who changed it.
        schema: the schema of the value, which has the merge keys of lists.
    """
    if isinstance(after, dict) and isinstance(before, dict) and after and before:
        assert isinstance(tree, dict)
        return {
            key: updated(tree[key], before[key], item, contributor, part_of(schema, key))
            if key in before
            else all_from(contributor, item, part_of(schema, key))
            for key, item in after.items()
        }
    if isinstance(after, list) and isinstance(before, list) and after and before:
        assert isinstance(tree, list)
        return _updated_list(tree, before, after, contributor, schema)
    if isinstance(tree, str) and type(after) in (type(before), MarkedText, MarkedNumber) and after == before:
        return contributor_of(after, tree)
    return all_from(contributor, after, schema)


def _updated_list(tree: list[Any], before: list[Any], after: list[Any], contributor: str, schema: Schema) -> list[Any]:
    found: list[Any] = []
    for item, origin in zip(after, _origins(before, after, _merge_key(schema)), strict=True):
        by = _contributor_of_element(item, schema, contributor)
        if origin is None or by != contributor:  # new, or replaced by an element with a marked key
            found.append(all_from(by, item, _item(schema)))
        else:
            found.append(updated(tree[origin], before[origin], item, contributor, _item(schema)))
    return found


def _contributor_of_element(item: Any, schema: Schema, otherwise: str) -> str:
    """Return who made an element of a list: who made its merge key, since nobody makes the key alone."""
    key = _merge_key(schema)
    return contributor_of(item.get(key), otherwise) if key and isinstance(item, dict) else otherwise


def _merge_key(schema: Schema) -> str:
    return schema.merge_key or "" if isinstance(schema, ListOf) else ""


def _item(schema: Schema) -> Schema:
    return schema.item if isinstance(schema, ListOf) else ANY_VALUE


def _origins(before: list[Any], after: list[Any], key: str) -> list[int | None]:
    """Return for each element of `after` its index in `before`, or None for a new one."""
    earlier, later = _keys(before, key), _keys(after, key)
    if earlier is not None and later is not None:
        index = {value: position for position, value in enumerate(earlier)}
        return [index.get(value) for value in later]
    if max(len(before), len(after)) > _MOST_ALIGNED:
        return [position if position < len(before) else None for position in range(len(after))]
    origins: list[int | None] = [None] * len(after)
    matcher = SequenceMatcher(None, _contents(before), _contents(after), autojunk=False)
    for operation, start, end, later_start, later_end in matcher.get_opcodes():
        if operation == "equal" or (operation == "replace" and end - start == later_end - later_start):
            origins[later_start:later_end] = range(start, end)
    return origins


def _keys(items: list[Any], key: str) -> list[Any] | None:
    """Return the merge keys of all elements, or None if one has none or two have the same."""
    if not key or not all(isinstance(item, dict) and isinstance(item.get(key), str | int) for item in items):
        return None
    keys = [item[key] for item in items]
    return keys if len(set(keys)) == len(keys) else None


def _contents(items: list[Any]) -> Sequence[bytes]:
    return [orjson.dumps(item, option=orjson.OPT_SORT_KEYS) for item in items]
