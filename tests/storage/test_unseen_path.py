"""A message about a path that is not here says where it was looked up, and what to do in a pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.checkpoints.errors import NoCheckpoint
from trainwright.checkpoints.exported import open_export
from trainwright.initializers.dataset import initialize_dataset
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.model import initialize_model
from trainwright.storage.claims import unseen_path_hint
from trainwright.storage.uri import StorageUri

IN_POD = r"no such path in this pod, .*pvc://CLAIM/FOLDER.*s3://BUCKET/FOLDER"


def test_hint_is_empty_for_what_exists_and_for_stores(tmp_path: Path) -> None:
    assert unseen_path_hint(StorageUri.from_path(tmp_path), in_pod=True) == ""
    assert unseen_path_hint(StorageUri.parse("s3://bucket/nothing"), in_pod=True) == ""


@pytest.mark.parametrize(("host", "words"), [("10.0.0.1", IN_POD), ("", "no such path on this machine")])
def test_sources_that_are_not_here_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, words: str) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if host:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    uri = str(StorageUri.from_path(tmp_path / "nothing"))
    with pytest.raises(InitializerError, match=f"does not exist; there is {words}"):
        initialize_dataset(uri, tmp_path / "dataset")
    with pytest.raises(InitializerError, match=f"does not exist; there is {words}"):
        initialize_model(uri, tmp_path / "model")
    with pytest.raises(NoCheckpoint, match=f"contains no export: it has no manifest.json; there is {words}"):
        open_export(uri)
