"""A user's own folders of runtimes, named by a variable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from trainwright.api.errors import BadRequest
from trainwright.api.objects import name_of
from trainwright.runtimes import bundled, bundled_runtime, bundled_runtimes


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    def name_them(*paths: Path) -> None:
        monkeypatch.setenv(bundled.FOLDERS, ":".join(map(str, paths)))
        bundled._catalogue.cache_clear()

    yield name_them
    bundled._catalogue.cache_clear()


def test_own_runtimes_are_added_and_replace_bundled_ones(folders: Callable[..., None], tmp_path: Path) -> None:
    own = {**(bundled_runtime("torch-distributed") or {}), "metadata": {"name": "ours"}}
    better = {**(bundled_runtime("jax-distributed") or {}), "metadata": {"name": "jax-distributed", "labels": {"team": "x"}}}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "one.yaml").write_text(yaml.safe_dump(own), "utf-8")
    (tmp_path / "b" / "two.yml").write_text(yaml.safe_dump(better), "utf-8")
    (tmp_path / "b" / "README").write_text("not a runtime", "utf-8")
    folders(tmp_path / "a", tmp_path / "b")
    found = {name_of(runtime): runtime for runtime in bundled_runtimes()}
    assert {"ours", "trl-sft"} <= set(found)
    assert found["jax-distributed"]["metadata"]["labels"] == {"team": "x"}
    assert list(found) == sorted(found)


@pytest.mark.parametrize(
    ("content", "words"),
    [("kind: Pod\n", "expected a ClusterTrainingRuntime"), ("a: [", "bad.yaml"), ("kind: X\n---\n[]", "bad.yaml")],
)
def test_a_file_that_is_no_runtime_is_named(folders: Callable[..., None], tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "bad.yaml").write_text(content, "utf-8")
    folders(tmp_path)
    with pytest.raises(BadRequest, match=words):
        bundled_runtimes()


def test_a_folder_that_is_not_there_is_an_error(folders: Callable[..., None], tmp_path: Path) -> None:
    folders(tmp_path / "nowhere")
    with pytest.raises(BadRequest, match="nowhere is not a folder"):
        bundled_runtimes()
