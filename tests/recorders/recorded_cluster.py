"""A cluster that plays a recorded TrainJob: lists, watches and logs answer from the stream up to the present of a virtual clock.

What a client writes is kept beside the stream: a patch is seen in later reads, a deletion is remembered. The stream goes on as it
was recorded, and after its last event everything stays as it is.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from trainwright.api.errors import AlreadyExists, ApiError, BadRequest, NotFound, error_from_status
from trainwright.api.kinds import TRAINJOB, Kind
from trainwright.api.objects import Obj, copy_of, described, name_of
from trainwright.api.patching.json_patch import merge
from trainwright.api.selectors.selection import field_selector, label_selector
from trainwright.cluster.protocol import Listing, WatchEvent

_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?)\d*Z ")
_NO_LOG = "unable to retrieve container logs for containerd://0\n"
"""What a kubelet sends in place of a log that it has removed."""


@dataclass(frozen=True)
class Change:
    """A watch event of the stream, at that many seconds since its begin."""

    at: float
    type: str
    plural: str
    object: Obj

    @property
    def version(self) -> int:
        return int(self.object["metadata"]["resourceVersion"])


class Recording:
    """One folder of `failures/cases`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.case = yaml.safe_load((folder / "case.yaml").read_text("utf-8"))
        logs = json.loads((folder / "logs.json").read_text("utf-8"))
        self.logs: dict[str, str] = logs["logs"]
        self.answers: list[Obj] = logs["answers"]
        self.changes = self._changes()
        self.job = next((change for change in self.changes if change.plural == "trainjobs" and self._is_job(change)), None)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def trainjob(self) -> Obj:
        """The TrainJob as it was sent."""
        return next(obj for obj in self.case["objects"] if obj["kind"] == "TrainJob" and name_of(obj) == "job")

    @property
    def last(self) -> float:
        return max((change.at for change in self.changes), default=0.0)

    def epoch(self) -> float:
        """The time of day at the begin of the stream, to the second."""
        if self.job is None:
            return time.time()
        return datetime.fromisoformat(self.job.object["metadata"]["creationTimestamp"]).timestamp() - self.job.at

    def _changes(self) -> list[Change]:
        """In the order of the resource versions; a change is as old as any later one."""
        with gzip.open(self.folder / "stream.jsonl.gz", "rt", encoding="utf-8") as lines:
            entries = [json.loads(line) for line in lines]
        changes = [Change(entry["at"], entry["type"], entry["kind"], entry["object"]) for entry in entries]
        ordered, latest = [], float("inf")
        for change in sorted(changes, key=lambda change: change.version, reverse=True):
            latest = min(latest, change.at)
            ordered.append(Change(latest, change.type, change.plural, change.object))
        return ordered[::-1]

    @staticmethod
    def _is_job(change: Change) -> bool:
        return name_of(change.object) == "job" and change.type == "ADDED"


class RecordedCluster:
    """A `Cluster`. The TrainJob `job` of the recording exists once it was created, under the name that it was given then.

    A later attempt of its step, which has another name, starts the recording again.
    """

    default_namespace = "train"
    host = "recorded"

    def __init__(self, recording: Recording, clock: Any, *, is_created: bool = False):
        self._recording, self._clock = recording, clock
        self._written: dict[tuple[str, str], Obj] = {}
        self._patches: list[tuple[str, str, Obj]] = []
        self._name, self._is_created = "job", is_created or recording.job is None
        self._begin = 0.0
        """When the stream begins, on the clock."""
        self.deleted: list[str] = []
        self.requests: list[tuple[float, str]] = []
        """When what was asked."""

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        self._note(f"get {kind.plural}")
        found = self._present(kind.plural).get(name)
        if found is None:
            raise NotFound(f'{kind.resource} "{name}" not found')
        return found

    def list(self, kind: Kind, namespace: str | None = None, *, label_selector: str = "", field_selector: str = "") -> Listing:
        self._note(f"list {kind.plural}")
        items = [obj for obj in self._present(kind.plural).values() if _selects(obj, label_selector, field_selector)]
        return Listing(items, str(self._version()))

    def watch(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
    ) -> Iterator[WatchEvent]:
        self._note(f"watch {kind.plural}")
        end = time.monotonic() + timeout_seconds
        for change in self._recording.changes:
            if change.plural != kind.plural or change.version <= int(resource_version or 0):
                continue
            if self._begin + change.at > end:
                break
            time.sleep(max(0.0, self._begin + change.at - time.monotonic()))
            obj = self._as_written(change.plural, change.object)
            if _selects(obj, label_selector, field_selector):
                yield WatchEvent(change.type, obj)
        time.sleep(max(0.0, end - time.monotonic()))

    def create(self, obj: Obj, **_options: Any) -> Obj:
        self._note(f"create {obj['kind']}")
        plural, name = _plural_of(obj), name_of(obj)
        if obj["kind"] == TRAINJOB.kind:
            return self._create_job(obj)
        self._raise_recorded(obj["kind"], name)
        if name in self._present(plural):
            raise AlreadyExists(f'{plural} "{name}" already exists')
        stored = copy_of(obj)
        stored["metadata"] |= {"namespace": "train", "uid": f"uid-{plural}-{name}", "resourceVersion": "1"}
        self._written[plural, name] = stored
        return stored

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **_options: Any) -> Obj:
        self._note(f"patch {kind.plural}")
        self.get(kind, name)
        without_version = {**patch, "metadata": {**patch.get("metadata", {})}}
        without_version["metadata"].pop("resourceVersion", None)
        self._patches.append((kind.plural, name, without_version))
        return self.get(kind, name)

    def update(self, obj: Obj) -> Obj:
        raise AssertionError(f"a client replaced {described(obj)}: clients of TrainJobs patch")

    update_status = update

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **_options: Any) -> None:
        self._note(f"delete {kind.plural}")
        self.get(kind, name)
        self.deleted.append(f"{kind.plural}/{name}")

    def logs(self, name: str, namespace: str, **options: Any) -> Iterator[bytes]:
        self._note("logs")
        pod = self._present("pods").get(name)
        if pod is None:
            raise NotFound(f'pods "{name}" not found')
        container = options.get("container") or pod["spec"]["containers"][0]["name"]
        restarts = _restarts(pod, container)
        if restarts is None:
            raise BadRequest(f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating')
        if options.get("previous"):
            if not restarts:
                raise BadRequest(f'previous terminated container "{container}" in pod "{name}" not found')
            key = f"{self._in_recording(name)}/{container}/previous"
            yield from _printed(self._recording.logs.get(key, _NO_LOG), options, None)
            return
        text = self._recording.logs.get(f"{self._in_recording(name)}/{container}", "")
        shown = ""
        while True:
            whole = b"".join(_printed(text, options, time.time())).decode()
            yield whole[len(shown) :].encode()
            shown = whole
            pod = self._present("pods").get(name)
            if not options.get("follow") or pod is None or not _runs(pod, container):
                return
            time.sleep(0.5)

    def _create_job(self, obj: Obj) -> Obj:
        job = self._recording.job
        self._raise_recorded("TrainJob", "job")
        assert job is not None
        if self._is_created and name_of(obj) == self._name:
            raise AlreadyExists(f'trainjobs.trainer.kubeflow.org "{self._name}" already exists')
        if self._is_created:
            self._begin = time.monotonic() - job.at
        else:
            self._clock.jump(job.at)
        self._is_created, self._name = True, name_of(obj)
        sent = {key: obj["metadata"][key] for key in ("labels", "annotations") if key in obj["metadata"]}
        self._patches.append(("trainjobs", self._name, {"metadata": sent}))
        return self.get(TRAINJOB, self._name)

    def _raise_recorded(self, kind: str, name: str) -> None:
        for answer in self._recording.answers:
            if (answer["kind"], answer["name"]) == (kind, name) and answer["code"] >= 400:
                raise _error_of(answer)

    def _present(self, plural: str) -> dict[str, Obj]:
        """The objects of a kind as they are now, by name."""
        found = {name: copy_of(obj) for (kind, name), obj in self._written.items() if kind == plural}
        if not self._is_created:
            return found
        for change in self._recording.changes:
            if self._begin + change.at > time.monotonic():
                break
            if change.plural == plural:
                obj = self._as_written(plural, change.object)
                if change.type == "DELETED":
                    found.pop(name_of(obj), None)
                else:
                    found[name_of(obj)] = obj
        return found

    def _version(self) -> int:
        past = (change.version for change in self._recording.changes if self._begin + change.at <= time.monotonic())
        return max(past, default=1)

    def _as_written(self, plural: str, obj: Obj) -> Obj:
        """The object under the name that the job was given, with what was patched."""
        obj = copy_of(obj) if self._name == "job" else self._renamed(obj)
        for kind, name, patch in self._patches:
            if (kind, name) == (plural, name_of(obj)):
                obj = merge(obj, patch)
        return obj

    def _renamed(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._renamed(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self._renamed(entry) for entry in value]
        if not isinstance(value, str):
            return value
        if value == "job":
            return self._name
        return re.sub(
            r'(?<![\w.-])((?:trainjob-|jobset-)?)job(?=-[a-z0-9-]+-\d|-[0-9a-f]{5}\b)|(?<=")job(?=")',
            lambda match: (match[1] or "") + self._name,
            value,
        )

    def _in_recording(self, pod: str) -> str:
        return pod.replace(self._name, "job", 1) if pod.startswith(self._name) else pod

    def _note(self, what: str) -> None:
        self.requests.append((time.monotonic(), what))


def _selects(obj: Obj, labels: str, fields: str) -> bool:
    return label_selector(labels)(obj) and field_selector(fields)(obj)


def _plural_of(obj: Obj) -> str:
    return f"{obj['kind'].lower()}s"


def _error_of(answer: Obj) -> ApiError:
    reasons = {403: "Forbidden", 409: "AlreadyExists", 422: "Invalid", 400: "BadRequest"}
    reason = reasons.get(answer["code"], "InternalError")
    return error_from_status({"code": answer["code"], "reason": reason, "message": answer["message"]})


def _states(pod: Obj) -> Iterator[Obj]:
    status = pod.get("status") or {}
    yield from status.get("initContainerStatuses") or []
    yield from status.get("containerStatuses") or []


def _restarts(pod: Obj, container: str) -> int | None:
    """The restarts of a container; None before its first start."""
    for entry in _states(pod):
        if entry["name"] == container and ("waiting" not in entry.get("state", {}) or entry.get("lastState")):
            return int(entry.get("restartCount") or 0)
    return None


def _runs(pod: Obj, container: str) -> bool:
    return any(entry["name"] == container and "running" in entry.get("state", {}) for entry in _states(pod))


def _printed(text: str, options: dict[str, Any], now: float | None) -> Iterator[bytes]:
    """The lines that were printed until `now` (None: all), as the options ask for them. The kubelet's own words bear no time."""
    lines = []
    for line in text.splitlines():
        match = _STAMP.match(line)
        if match is not None and now is not None and datetime.fromisoformat(f"{match[1]}+00:00").timestamp() > now + 1.0:
            continue
        lines.append(line if match is None or options.get("timestamps") else line[match.end() :])
    if options.get("tail_lines") is not None:
        lines = lines[len(lines) - options["tail_lines"] :] if options["tail_lines"] < len(lines) else lines
    if lines:
        yield ("\n".join(lines) + "\n").encode()
