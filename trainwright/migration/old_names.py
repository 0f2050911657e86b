"""Renames old pods in the texts of a job: host names in commands, arguments and variables, and the operator's labels.

The operators named a pod `JOB-worker-0`, which was its host name too. A text is changed only where it certainly is a host name;
elsewhere (a path, the name of a run) a note says what the pod is called now.
"""

from __future__ import annotations

import json
import re
from typing import Any

from trainwright.api.objects import Obj
from trainwright.migration import placement
from trainwright.migration.placement import OPERATOR_LABELS, Place, Placement
from trainwright.migration.replica_job import ReplicaJob, Replicas

_HOSTISH = re.compile(
    r"host|addr|master|endpoint|server|rdzv|rendezvous|ur[il]|peer|coord|tracker|nodes?$|(?:^|[_-])ip$|ping|nslookup|ssh|curl|wget|^nc$|getent|dig$",
    re.IGNORECASE,
)
"""Names of variables, options and programs whose value is a host."""
_SEPARATORS = re.compile(r"""[\s="']+""")
_PORT = re.compile(r":[\d${]")
_ASKS_HOST = re.compile(r"HOSTNAME|\bhostname\b")


def rename_pods(job: ReplicaJob, placement: Placement) -> None:
    """Rename pods in the templates of all replicated jobs, and give pods the labels of the operator that the job reads."""
    done: list[Replicas] = []
    for place in placement.jobs:
        if not any(place.replicas is other for other in done):  # two jobs may have one template
            _Renamer(job, placement, place).run()
            done.append(place.replicas)


class _Renamer:
    """Walks through one pod template."""

    def __init__(self, job: ReplicaJob, placement: Placement, place: Place) -> None:
        self.job, self.placement, self.place = job, placement, place
        self.path = f"{place.replicas.path}.template"

    def run(self) -> None:
        template = self.place.replicas.template
        if OPERATOR_LABELS in json.dumps(template):
            self._add_labels(template)
        for field in ("initContainers", "containers"):
            for number, container in enumerate(template["spec"].get(field) or []):
                self._container(container, f"{self.path}.spec.{field}[{number}]")
        self._field_paths(template["spec"], f"{self.path}.spec")

    def _add_labels(self, template: Obj) -> None:
        """Set the operator's labels, except for the number of the pod, which a template cannot have."""
        labels = {f"{OPERATOR_LABELS}job-name": self.job.name} if self.job.has_name else {}
        types = {place.replicas.name for place in self.placement.places if place.job == self.place.job}
        if len(types) == 1:
            labels[f"{OPERATOR_LABELS}replica-type"] = types.pop()
        metadata = template.setdefault("metadata", {})
        metadata["labels"] = {**labels, **(metadata.get("labels") or {})}
        self.job.notes.add(f"{self.path}.metadata.labels", f"{', '.join(labels)} were added, which the operator set")

    def _container(self, container: Obj, path: str) -> None:
        for field in ("command", "args"):
            before = ""
            for number, text in enumerate(container.get(field) or []):
                label = before if before.startswith("-") else ""
                container[field][number] = self._text(text, label, f"{path}.{field}[{number}]")
                before = text
        for number, variable in enumerate(container.get("env") or []):
            if "value" in variable:
                variable["value"] = self._text(variable["value"], str(variable.get("name")), f"{path}.env[{number}].value")

    def _text(self, text: str, label: str, path: str) -> str:
        """Return the text with new host names. `label` is the name of the value that the text is."""
        if not self.job.has_name:
            return text  # the old names were not known either
        changes: list[str] = []
        unsure: list[str] = []

        def renamed(match: re.Match[str]) -> str:
            new = _new_name(self.job, self.placement, match)
            if new is None or not _is_host(text, match, label):
                unsure.append(_described(self.job, self.placement, match))
                return match.group(0)
            changes.append(f"{match.group(0)} became {new}")
            return new

        new_text = _pattern(self.job).sub(renamed, text)
        for change in dict.fromkeys(changes):
            self.job.notes.add(path, f"the host {change}")
        for what in dict.fromkeys(unsure):
            self.job.notes.add(path, f"is unchanged; if this is a host name, change it: {what}")
        if not changes and not unsure and (_ASKS_HOST.search(text) or _prefix(self.job).search(text)):
            self.job.notes.add(path, f"may build names of pods, or parts of them: {self._scheme()}")
        return new_text

    def _scheme(self) -> str:
        mapped = [
            f"{self.job.name}-{place.replicas.name}-{place.first} is now {self.job.name}-{place.pod(place.first)}"
            for place in self.placement.places
        ]
        return ", ".join(mapped)

    def _field_paths(self, value: Any, path: str) -> None:
        """Replace references to the number of the pod among its type's, and note those to its name."""
        if isinstance(value, list):
            for number, item in enumerate(value):
                self._field_paths(item, f"{path}[{number}]")
        elif isinstance(value, dict):
            for key, inner in value.items():
                if key != "fieldPath":
                    self._field_paths(inner, f"{path}.{key}")
                elif inner == f"metadata.labels['{OPERATOR_LABELS}job-name']":
                    value[key] = placement.JOBSET_LABEL
                elif inner == f"metadata.labels['{OPERATOR_LABELS}replica-index']":
                    value[key] = placement.JOB_INDEX if self.place.own_jobs else placement.COMPLETION_INDEX
                    if len(list(self.placement.of(self.place.replicas))) > 1:
                        self.job.notes.add(f"{path}.{key}", "is now the number of the pod in its replicated job")
                elif inner == "metadata.name":
                    self.job.notes.add(f"{path}.{key}", f"names of pods now end in random letters; host names: {self._scheme()}")


def _pattern(job: ReplicaJob) -> re.Pattern[str]:
    """Match the host name of an old pod, with the domains in which it was known."""
    types = "|".join(replicas.name for replicas in job.replicas.values())
    launcher = "|launcher" if "Launcher" in job.replicas else ""
    name, namespace = re.escape(job.name), re.escape(str(job.metadata.get("namespace") or ""))
    anywhere = r"\.[a-z0-9-]+\.svc(?:\.cluster\.local)?"
    domain = rf"(?:\.{name})?(?:{anywhere}|\.{namespace})?" if namespace else rf"(?:\.{name})?(?:{anywhere})?"
    return re.compile(
        rf"(?<![\w.-]){name}-(?:(?P<type>{types})-(?P<number>\d{{1,9}}){launcher})(?P<domain>{domain})(?![\w-]|\.\w)"
    )


def _prefix(job: ReplicaJob) -> re.Pattern[str]:
    """Match the beginning of a pod's name, whose job or number is in a variable."""
    types = "|".join(replicas.name for replicas in job.replicas.values())
    return re.compile(rf"(?:[)}}]|(?<![\w.-]){re.escape(job.name)})-(?:{types})-")


def _new_name(job: ReplicaJob, placement: Placement, match: re.Match[str]) -> str | None:
    """Return the new host name, in the domain of the old one; None for a pod that the job does not have."""
    replicas = _replicas(job, match.group("type") or "launcher")
    pod = placement.pod(replicas, int(match.group("number") or 0)) if replicas is not None else None
    domain = match.group("domain").removeprefix(f".{job.name}")  # the subdomain of an MPIJob
    return f"{job.name}-{pod}.{job.name}{domain}" if pod is not None else None


def _replicas(job: ReplicaJob, name: str) -> Replicas | None:
    return next((replicas for replicas in job.replicas.values() if replicas.name == name), None)


def _described(job: ReplicaJob, placement: Placement, match: re.Match[str]) -> str:
    new = _new_name(job, placement, match)
    return f"{match.group(0)} is now {new}" if new is not None else f"the job has no pod {match.group(0)}"


def _is_host(text: str, match: re.Match[str], label: str) -> bool:
    """Whether the match certainly is a host name: by its domain or port, in a URL, or by the name of the value."""
    before, after = text[: match.start()], text[match.end() :]
    if before.endswith("/") and not before.endswith("//"):
        return False
    if match.group("domain") or _PORT.match(after) or before.endswith(("//", "@")):
        return True
    if after.startswith("/"):
        return False
    *words, last = _SEPARATORS.split(before)  # `--hosts=a,b`: the last of `--hosts` and `a,` before b
    if words and (not last or last.endswith(",")):
        label = words[-1].rstrip(":")
    return (not last or last.endswith(",")) and bool(_HOSTISH.search(label))
