"""What a verb comes to: an object, or the Status of a deletion, with what its author should be told."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, name_of
from trainwright.controlplane.apiserver.storage.records import Record
from trainwright.controlplane.apiserver.wire.api_errors import details_of

Warnings = list[str]


@dataclass(frozen=True)
class Answer:
    """One answer. With `is_status` it is a Status, and no object of the kind that was asked for."""

    record: Record
    warnings: Warnings = field(default_factory=list)
    created: bool = False
    is_status: bool = False

    @property
    def object(self) -> Obj:
        return self.record.object

    @property
    def data(self) -> bytes:
        return self.record.data


def answer_with(obj: Obj, warnings: Warnings | None = None, *, created: bool = False, is_status: bool = False) -> Answer:
    """An answer that is not what the store holds."""
    return Answer(Record(0, ("", ""), orjson.dumps(obj), obj), warnings or [], created, is_status)


def deleted(kind: Kind, obj: Obj) -> Answer:
    """The Status that says that an object is gone."""
    details = {**details_of(kind, name_of(obj)), "uid": obj["metadata"]["uid"]}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return answer_with(status, is_status=True)
