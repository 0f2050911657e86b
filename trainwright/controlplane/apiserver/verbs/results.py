"""The result of a verb: an object, or the Status of a deletion, with warnings."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, name_of
from trainwright.controlplane.apiserver.storage.object_table import Record
from trainwright.controlplane.apiserver.wire.api_errors import status_details

Warnings = list[str]


@dataclass(frozen=True)
class Result:
    """A result. With `is_status` it is a Status instead of an object of the requested kind."""

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


def unstored_result(obj: Obj, warnings: Warnings | None = None, *, created: bool = False, is_status: bool = False) -> Result:
    """A result with an object that is not stored."""
    return Result(Record(0, ("", ""), orjson.dumps(obj), obj), warnings or [], created, is_status)


def deletion_status(kind: Kind, obj: Obj) -> Result:
    """The Success Status for a removed object."""
    details = {**status_details(kind, name_of(obj)), "uid": obj["metadata"]["uid"]}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return unstored_result(status, is_status=True)
