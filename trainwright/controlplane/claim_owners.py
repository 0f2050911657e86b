"""Gives each claim a folder that no other claim has had: one of the same name, created later, must not find the data of the first.

The uid of the claim that a folder belongs to is kept beside it. A folder without such a record was put there by the operator, for
the claim of that name. The folder of an earlier claim is set aside and never deleted, unless it was an ephemeral volume of a pod.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from pathlib import Path

from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, controller_of, name_of, namespace_of, uid_of

SET_ASIDE = ".deleted"
"""In the folder of all claims: the folders of claims that were deleted, as `NAMESPACE/NAME.UID`."""
_OWNER = ".{}.uid"
_EPHEMERAL = "ephemeral"
_lock = threading.Lock()
"""The node and the controller of claims may meet."""
log = logging.getLogger(__name__)


def take_folder(claim: Obj, folder: Path, claims: Path) -> None:
    """Record whose folder this is before it is used; set the folder of another claim of this name aside. Raises OSError."""
    record = folder.parent / _OWNER.format(folder.name)
    with _lock:
        owner, _, was_ephemeral = _read(record).partition(" ")
        if owner == uid_of(claim):
            return
        if was_ephemeral and folder.exists():
            shutil.rmtree(folder)
        elif owner and folder.exists():
            kept = claims / SET_ASIDE / namespace_of(claim) / f"{name_of(claim)}.{owner}"
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.rename(kept)
            log.warning("event=claim_folder_set_aside claim=%s/%s folder=%s", namespace_of(claim), name_of(claim), kept)
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = record.with_name(f"{record.name}.new")
        with open(temporary, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(f"{uid_of(claim)} {_EPHEMERAL}" if _is_ephemeral(claim) else uid_of(claim))
        os.replace(temporary, record)


def _is_ephemeral(claim: Obj) -> bool:
    """Whether the claim is a pod's generic ephemeral volume, whose data end with the pod."""
    owner = controller_of(claim)
    return owner is not None and owner["kind"] == POD.kind


def _read(record: Path) -> str:
    try:
        return record.read_text("utf-8")
    except FileNotFoundError:
        return ""
