"""Replaying recorded admissions in process: the documents of a case through `admit`, and how its answer differs from the recording."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainwright.api import kinds
from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.api.documents import load_documents
from trainwright.api.errors import Invalid
from trainwright.api.patching.json_patch import apply_json_patch, merge

Obj = dict[str, Any]
NOW = "2026-08-21T00:00:00Z"
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")
_DROPPED = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")
_POLICY_FIELDS = (
    "spec.trainer",
    "spec.runtimeRef: Invalid value: ",
    "spec.runtimeRef.name: Invalid",
    "spec.annotations",
    "spec.templateSpec",
)


class Replay:
    """A cluster that only admits: what was created, by kind, namespace and name."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, str, str], Obj] = {}
        self.warnings: list[str] = []

    def lookup(self, kind: str, namespace: str, name: str) -> Obj | None:
        return self.stored.get((kind, namespace, name))

    def key(self, obj: Obj) -> tuple[str, str, str]:
        metadata = obj["metadata"]
        namespace = "" if obj["kind"] == "ClusterTrainingRuntime" else metadata.get("namespace", "default")
        return obj["kind"], namespace, metadata.get("name", "")

    def write(self, obj: Obj, only_status: bool = False) -> Obj:
        """Create or replace one document, which is placed in its namespace as a server does."""
        key = self.key(obj)
        placed = {**obj, "metadata": {**obj["metadata"], "namespace": key[1]}} if key[1] else obj
        admitted = admit(placed, self.stored.get(key), context=AdmissionContext(NOW, self.lookup, only_status=only_status))
        self.warnings.extend(f"{obj['kind']}/{key[2]}: {text}" for text in admitted.warnings)
        self.stored[key] = admitted.object
        return admitted.object


def read(path: Path) -> Any:
    documents = load_documents(path.read_text("utf-8"), str(path))
    return documents[0] if documents else None


def needs_policy(refused: Obj) -> bool:
    """Whether a denial comes from a policy, which sees the runtime's patched template: those rules stand in `materialize`."""
    message = str(refused["message"])
    if refused["code"] != 403 or "must be created before" in message:
        return False
    told = message.partition("denied the request: ")[2].lstrip("[")
    return refused["kind"] == "TrainJob" and told.startswith(_POLICY_FIELDS)


def difference(case: Path) -> str:
    """How our answers to a case differ from the recording; empty when they do not."""
    replay = Replay()
    refused = read(case / "refused.yaml") if (case / "refused.yaml").exists() else None
    update = (case / "after.yaml").exists()
    if update:
        for document in documents(case / "before.yaml"):
            replay.write(document)
        if (case / "delete.yaml").exists():
            for document in documents(case / "delete.yaml"):
                replay.stored.pop(replay.key(document), None)
        replay.warnings.clear()
    last: Obj = {}
    for index, document in enumerate(documents(case / ("after.yaml" if update else "input.yaml"))):
        expected = refused if refused and refused["document"] == index else None
        try:
            last = replay.write(document)
        except Invalid as error:
            return refusal_difference(expected, error) if expected else f"refused: {error.message}"
        if expected:
            return "left to a policy" if needs_policy(expected) else f"admitted, but: {expected['message']}"
    return admitted_difference(case, document, last) or warnings_difference(case, replay)


def documents(path: Path) -> list[Obj]:
    return load_documents(path.read_text("utf-8"), str(path))


_BY_US_ALONE = ("takes no effect", "numNodes is 0", "names no GPU")
"""Warnings that Trainer's webhook does not give."""


def refusal_difference(expected: Obj, error: Invalid) -> str:
    got = (error.code, error.reason)
    if got != (expected["code"], expected["reason"] or ""):
        return f"answered {got}: {error.message}; expected {expected['code']} {expected['reason']}: {expected['message']}"
    wanted, told = causes(expected.get("causes")), causes(error.details.get("causes"))
    if wanted != told:
        return f"causes {sorted(told ^ wanted)}"
    if parts(expected["message"]) != parts(error.message):
        return f"said {error.message!r}; expected {expected['message']!r}"
    return ""


def masked(text: str) -> str:
    return _TIME.sub("TIME", text).replace("-XXXXX", "-xxxxx")


def causes(listed: list[Obj] | None) -> set[tuple[str, str, str]]:
    return {(c["field"], c["reason"], masked(c["message"])) for c in listed or []}


def parts(message: str) -> list[str]:
    """A message without the order of its parts, which is drawn anew at each start of a server."""
    return sorted(re.split(r"[\[\]]|, ", masked(message)))


def admitted_difference(case: Path, document: Obj, got: Obj) -> str:
    expected = read(case / "admitted.yaml") if (case / "admitted.yaml").exists() else None
    if expected is None:
        return ""
    given = {patch.get("time") for patch in (document.get("spec") or {}).get("runtimePatches") or []}
    for patch in (got.get("spec") or {}).get("runtimePatches") or []:
        patch["time"] = patch["time"] if patch["time"] in given else "TIME"
    ours, theirs = flat(got), flat(expected)
    differing = sorted(path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path))
    return "; ".join(f"{path}: {ours.get(path)!r}, recorded {theirs.get(path)!r}" for path in differing[:5])


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """The leaves of an object by path, under the recordings' normalisation."""
    if isinstance(value, dict):
        items = {k: v for k, v in value.items() if k not in _DROPPED and not (path == "" and k == "status")}
        return {p: v for k, item in items.items() for p, v in flat(item, f"{path}.{k}").items()} or {path: {}}
    if isinstance(value, list):
        return {p: v for i, item in enumerate(value) for p, v in flat(item, f"{path}[{i}]").items()} or {path: []}
    return {path: value}


def warnings_difference(case: Path, replay: Replay) -> str:
    path = case / "warnings.txt"
    expected = path.read_text("utf-8").splitlines() if path.exists() else []
    said = [text for text in replay.warnings if not any(mark in text for mark in _BY_US_ALONE)]
    return "" if said == expected else f"warned {replay.warnings}, recorded {expected}"


def cases(root: Path, *sets: str) -> Iterator[Path]:
    for name in sets:
        yield from sorted(path for path in (root / name).iterdir() if path.is_dir())


def scenario_difference(folder: Path) -> str:
    """How the answers to a scenario of creations and patches differ from those observed; empty when they do not.

    Steps that only wait for controllers are left out.
    """
    scenario, observed = read(folder / "scenario.yaml"), read(folder / "observed.yaml")
    results = iter(observed["results"])
    replay = Replay()
    for obj in scenario["objects"]:
        kind = next(known for known in kinds.ALL if known.kind == obj["kind"])
        created = {"apiVersion": kind.api_version, **obj}
        created["metadata"] = {**obj["metadata"], "namespace": "default", "uid": "3f0e9c1a"}
        if problem := answer_difference(next(results), lambda obj=created: replay.write(obj)):
            return problem
    for step in scenario["steps"]:
        if step == "settle":  # by then the Job controller has made a pod
            for (kind, _, _), obj in replay.stored.items():
                obj.update({"status": {"active": 1}} if kind == "Job" and not obj["spec"].get("suspend") else {})
        if not isinstance(step, dict) or "patch" not in step:
            continue
        patch, result = step["patch"], next(results)
        stored = replay.stored[patch["kind"], "default", patch["name"]]
        change = apply_json_patch if isinstance(patch["patch"], list) else merge
        status = patch.get("subresource") == "status"
        if problem := answer_difference(result, lambda: replay.write(change(stored, patch["patch"]), status)):  # noqa: B023
            return problem
    return ""


def answer_difference(result: Obj, write: Any) -> str:
    try:
        write()
    except Invalid as error:
        if error.code != result["code"]:
            return f"refused with {error.message}; expected {result['code']} {result.get('message')}"
        told = sorted((cause["field"], cause["reason"]) for cause in error.details.get("causes") or [])
        wanted = sorted((cause["field"], cause["reason"]) for cause in result.get("causes") or [])
        return "" if told == wanted else f"causes {told}, expected {wanted}"
    if result["code"] == 409 or needs_policy({"kind": "TrainJob", "message": "", **result}):
        return ""
    return "" if result["code"] < 300 else f"admitted; expected {result['code']} {result['message']}"
