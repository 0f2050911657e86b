"""The queues and their quotas, as YAML in a file and in the ConfigMap that enables the queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.api.quantities import Requests, parse_quantity
from trainwright.text.text_input import Unreadable
from trainwright.text.yaml_reader import read_yaml

FIELD = "queues.yaml"


class QueueError(ValueError):
    """Invalid queues; the message names the field and the reason."""


@dataclass(frozen=True)
class Queue:
    """`quota` limits the listed resources; others are unlimited."""

    name: str
    quota: Requests


def parse_queues(text: str) -> dict[str, Queue]:
    """Parse `queues: [{name: research, quota: {cpu: 4}}]`. Raises QueueError."""
    try:
        found = next(iter(read_yaml(text)), None)
    except Unreadable as error:
        raise QueueError(f"the queues are not valid YAML: {error}") from None
    entries = found.get("queues") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise QueueError("queues: expected a list of {name, quota}")
    queues = [_queue(entry, f"queues[{number}]") for number, entry in enumerate(entries)]
    duplicates = {queue.name for queue in queues if sum(other.name == queue.name for other in queues) > 1}
    if duplicates:
        raise QueueError(f"queues: duplicate name {', '.join(sorted(duplicates))}")
    return {queue.name: queue for queue in queues}


def queues_map(text: str) -> Obj:
    """Return the ConfigMap with these queues. Raises QueueError."""
    parse_queues(text)
    namespace, name = names.QUEUES_CONFIG_MAP
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {FIELD: text}}


def _queue(entry: Any, where: str) -> Queue:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
        raise QueueError(f"{where}.name: expected the name of a queue")
    if unknown := entry.keys() - {"name", "quota"}:
        raise QueueError(f"{where}: unknown field {sorted(unknown)[0]}; expected name and quota")
    quota = entry.get("quota") or {}
    if not isinstance(quota, dict):
        raise QueueError(f"{where}.quota: expected amounts by resource")
    return Queue(
        entry["name"], {str(resource): _amount(amount, f"{where}.quota.{resource}") for resource, amount in quota.items()}
    )


def _amount(amount: Any, where: str) -> Any:
    try:
        found = parse_quantity(amount)
    except ValueError as error:
        raise QueueError(f"{where}: {error}") from error
    if found.value < 0:
        raise QueueError(f"{where}: {amount!r} must not be negative")
    return found
