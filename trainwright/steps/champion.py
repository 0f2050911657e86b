"""What the champion is, and whether other data have come since it was trained."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.promotion import CHAMPION, Alias
from trainwright.jobs.request.workspace import AUTO
from trainwright.steps.rejected import Rejection, rejection_of, settings_digest
from trainwright.steps.requests import ReadChampion

State = Literal["none", "outdated", "current"]


@dataclass(frozen=True)
class Champion:
    """The export that an alias names; all empty if it names none. `dataset_digest` is that of the data that it was trained on, `model`
    that of its base model, empty if its manifest does not record them."""

    uri: str = ""
    digest: str = ""
    dataset_digest: str = ""
    model_digest: str = ""

    def is_outdated(self, dataset_digest: str, model_digest: str = "") -> bool:
        """Whether a training on this dataset and base model could come to anything else. An empty digest is not compared."""
        if not self.uri or self.dataset_digest != dataset_digest:
            return True
        return bool(model_digest) and self.model_digest != model_digest

    def state(self, dataset_digest: str, model_digest: str = "", *, always_train: bool = False) -> State:
        """Return none without a champion, outdated if it was trained on other data, or with `always_train`; else current."""
        if not self.uri:
            return "none"
        return "outdated" if always_train or self.is_outdated(dataset_digest, model_digest) else "current"


class Found(NamedTuple):
    """What an alias names, its state with regard to what is asked about, and `resume` of a training that would replace it. The
    `reason` says why nothing is to be trained; it is empty if something is. `training` is the digest of the settings asked about."""

    champion: Champion
    state: State
    start_from: str
    reason: str = ""
    training: str = ""

    def as_dict(self) -> dict[str, Any]:
        more = {"reason": self.reason, "training_digest": self.training}
        return {"state": self.state, "start_from": self.start_from, **more, **asdict(self.champion)}


def read_champion_for(request: ReadChampion) -> Found:
    """Return what the alias names, and what that means for a training. Raises as `read_champion`."""
    champion = read_champion(request.export_uri, request.alias)
    state = champion.state(request.dataset_digest, request.model_digest, always_train=request.always_train)
    has_same_base = not request.model_digest or champion.model_digest in ("", request.model_digest)
    is_warm = request.warm_start and bool(champion.uri) and has_same_base
    reason, training = "", settings_digest(request.training)
    if state == "current":
        reason = f"the champion {champion.uri} was trained on the same dataset, {request.dataset_digest}"
    elif not request.always_train:
        asked = Rejection(dataset=request.dataset_digest, model=request.model_digest, settings=training, champion=champion.digest)
        if (kept_out := rejection_of(request.export_uri, request.alias, asked)) is not None:
            state = "current"
            reason = (
                f"the same training was done, and its export {kept_out.uri} was not promoted: {kept_out.reason}; "
                "set always_train to train it again"
            )
    return Found(champion, state, f"weights:{champion.uri}" if is_warm else AUTO, reason, training)


def read_champion(export_uri: str, alias: str = CHAMPION) -> Champion:
    """Return what the alias below the folder of all exports names.

    Raises NoCheckpoint if its export is gone, CheckpointError if there is another one in its place, StorageError.
    """
    record = Alias(export_uri, alias).read()
    if record is None:
        return Champion()
    manifest = open_export(record.current.uri, record.current.manifest).manifest
    origin = manifest.metadata.get("origin")
    known = origin if isinstance(origin, dict) else {}
    return Champion(record.current.uri, manifest.digest, str(known.get("dataset") or ""), str(known.get("model") or ""))
