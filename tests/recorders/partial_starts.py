"""Makes recordings of trainings of which a part starts, from recordings of a real cluster: `ok`, and one of what keeps a pod away.

Two pods train. The first one starts as in `ok`, and runs on. The other one is refused by a quota, finds no node or no image, or its
place is all that is left of it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from recording_archives import recordings_of

from trainwright.api.objects import copy_of

Entry = dict[str, Any]
_STARTED = 3.9
"""When both pods run, in `ok`."""


def partial_start(folder: Path, *, kept_away_by: str, jobs: int = 2) -> Path:
    """Write a recording in which the second pod never starts; returns its folder.

    Args:
        folder: where to write it.
        kept_away_by: the recording that shows how: quota-pods, unschedulable-cpu or image-missing.
        jobs: 2 if each pod has a Job of its own, so that the TrainJob counts as running with the first one; 1 if both have one.
    """
    entries = [copy_of(entry) for entry in _entries("ok") if entry["at"] < _STARTED]
    kept = [entry for entry in entries if "node-0-1" not in entry["object"]["metadata"]["name"]]
    second = next(entry for entry in entries if entry["kind"] == "pods" and "node-0-1" in entry["object"]["metadata"]["name"])
    if kept_away_by == "quota-pods":
        kept += _refusals(f"job-node-{jobs - 1}")
    else:
        kept.append({**second, "at": 2.6, "object": {**second["object"], "status": _waiting_status(kept_away_by)}})
    _count(kept, ready=1 if jobs == 2 else 0)
    if jobs == 2:
        kept = [*map(_of_two_jobs, kept), *_second_job(kept)]
    return _written(folder, kept)


def replaced_after_start(folder: Path) -> Path:
    """Write a recording in which both pods start, and the second one is replaced.

    The replacement finds no node for over a minute; the job succeeds in the end.
    """
    whole = [copy_of(entry) for entry in _entries("ok")]
    entries = [entry for entry in whole if entry["at"] < _STARTED]
    second = next(
        entry["object"] for entry in entries[::-1] if entry["kind"] == "pods" and "-1-" in entry["object"]["metadata"]["name"]
    )
    status = next(entry["object"] for entry in entries[::-1] if entry["kind"] == "trainjobs")
    for entry in status["status"]["jobsStatus"]:
        entry["ready"] = 1
    later = copy_of(status)
    later["status"]["jobsStatus"][0]["ready"] = 0
    replacement = {**second, "metadata": {**second["metadata"], "name": "job-node-0-1-zzzzz", "uid": "replacement"}}
    entries += [
        {"at": 20.0, "type": "DELETED", "kind": "pods", "object": second},
        {
            "at": 20.1,
            "type": "ADDED",
            "kind": "pods",
            "object": {**replacement, "status": _waiting_status("unschedulable-cpu")},
        },
        {"at": 20.2, "type": "MODIFIED", "kind": "trainjobs", "object": later},
        {**next(entry for entry in whole[::-1] if entry["kind"] == "trainjobs"), "at": 100.0},
    ]
    return _written(folder, entries)


def _entries(case: str) -> list[Entry]:
    with gzip.open(recordings_of("failures") / "cases" / case / "stream.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _refusals(job: str) -> Iterator[Entry]:
    """The events of a Job whose pod a quota of one pod refuses."""
    for entry in _entries("quota-pods"):
        if entry["kind"] == "events":
            event = copy_of(entry["object"])
            event["involvedObject"]["name"] = job
            event["message"] = event["message"].replace("used: pods=0, limited: pods=0", "used: pods=1, limited: pods=1")
            yield {**entry, "object": event}


def _waiting_status(case: str) -> Any:
    """The status of the pod of a recording that waits, as it was seen last."""
    pods = [entry["object"] for entry in _entries(case) if entry["kind"] == "pods" and entry["type"] != "DELETED"]
    return pods[-1]["status"]


def _count(entries: list[Entry], *, ready: int) -> None:
    """Set the counters of what is ready, from the moment at which the first pod is."""
    for entry in entries:
        status = entry["object"].get("status") or {}
        counters = status.get("jobsStatus") or status.get("replicatedJobsStatus") or []
        for counter in counters if entry["at"] > 3 else []:
            counter["ready"] = ready
        if entry["kind"] == "jobs" and status.get("ready"):
            status["ready"] = 1


def _of_two_jobs(entry: Entry) -> Entry:
    """The entry where each pod has a Job of its own."""
    obj = copy_of(entry["object"])
    if entry["kind"] == "jobsets":
        replicated = obj["spec"]["replicatedJobs"][0]
        replicated["replicas"] = 2
        replicated["template"]["spec"] |= {"parallelism": 1, "completions": 1}
    elif entry["kind"] == "jobs":
        obj["spec"] |= {"parallelism": 1, "completions": 1}
    elif entry["kind"] == "pods" and "node-0-1" in obj["metadata"]["name"]:
        obj["metadata"]["name"] = "job-node-1-0-crfrl"
        obj["metadata"]["labels"] |= {
            "jobset.sigs.k8s.io/job-index": "1",
            "batch.kubernetes.io/job-completion-index": "0",
        }
    return {**entry, "object": obj}


def _second_job(entries: list[Entry]) -> Iterator[Entry]:
    """The second Job, which has no pod that is ready."""
    first = next(entry for entry in entries if entry["kind"] == "jobs")
    job = _of_two_jobs(first)["object"]
    job["metadata"] |= {"name": "job-node-1", "uid": "second-job"}
    job["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"] = "1"
    yield {**first, "object": job}


def _written(folder: Path, entries: list[Entry]) -> Path:
    folder.mkdir(parents=True)
    case = yaml.safe_load((recordings_of("failures") / "cases" / "ok" / "case.yaml").read_text("utf-8"))
    (folder / "case.yaml").write_text(yaml.safe_dump({**case, "told": {"exitCode": 21, "contains": []}}), "utf-8")
    (folder / "logs.json").write_text(json.dumps({"logs": {}, "answers": []}), "utf-8")
    with gzip.open(folder / "stream.jsonl.gz", "wt", encoding="utf-8") as lines:
        for number, entry in enumerate(sorted(entries, key=lambda entry: entry["at"]), 1):
            entry["object"]["metadata"]["resourceVersion"] = str(number)
            lines.write(json.dumps(entry) + "\n")
    return folder
