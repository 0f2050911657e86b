"""A folder as a store: create-only under races, whole files under faults, and no key that leads out."""

import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainwright.storage import atomic_file
from trainwright.storage.errors import AlreadyExists, NoSpace, NotFound, StorageError
from trainwright.storage.file_store import FileStore
from trainwright.storage.open import open_store
from trainwright.storage.store import FolderNames, Store, StoredFile
from trainwright.storage.uri import StorageUri

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Store:
    return FileStore(StorageUri.from_path(root))


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def source_of(tmp_path: Path, content: bytes) -> Path:
    source = tmp_path / "source"
    source.write_bytes(content)
    return source


@pytest.mark.medium
@pytest.mark.parametrize("links", [True, False], ids=["hard-links", "no-hard-links"])
def test_one_of_eight_racing_creators_wins(store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    if not links:
        monkeypatch.setattr(os, "link", fails_with(errno.EPERM))
    for round_ in range(20):
        barrier = threading.Barrier(8)

        def create(number: int, key: str = f"{round_}/manifest.json", barrier: threading.Barrier = barrier) -> int | None:
            barrier.wait()
            try:
                store.create(key, b"%d" % number * 1000)
            except AlreadyExists:
                return None
            return number

        with ThreadPoolExecutor(8) as pool:
            winners = [number for number in pool.map(create, range(8)) if number is not None]
        assert len(winners) == 1
        assert store.read(f"{round_}/manifest.json") == b"%d" % winners[0] * 1000
    assert names(root) == sorted(f"{round_}/manifest.json" for round_ in range(20))


def fails_with(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_create_says_by_uri_what_exists(store: Store, root: Path) -> None:
    store.create("manifest.json", b"1")
    with pytest.raises(AlreadyExists, match=f"file://{root}/manifest.json exists"):
        store.create("manifest.json", b"2")
    assert store.read("manifest.json") == b"1"


@pytest.mark.medium
def test_a_reader_sees_one_whole_version_or_the_other(store: Store, tmp_path: Path) -> None:
    size = 256 * 1024
    store.replace("file", b"0" * size)
    done = threading.Event()
    seen: set[bytes] = set()

    def read() -> None:
        while not done.is_set():
            content = store.read("file")
            seen.add(content[:1] if content == content[:1] * size else b"torn")

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(30):
        store.put(source_of(tmp_path, b"%d" % (number % 10) * size), "file")
    done.set()
    reader.join()
    assert b"torn" not in seen


@pytest.mark.parametrize("fails", ["fsync", "replace"])
@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, NoSpace), (errno.EDQUOT, NoSpace), (errno.EIO, StorageError)])
def test_existing_file_stays_when_the_disk_fails(
    store: Store, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, number: int, kind: type[Exception]
) -> None:
    store.replace("file", b"before")
    source = source_of(tmp_path, b"after")
    with monkeypatch.context() as patched:
        patched.setattr(os, fails, fails_with(number))
        with pytest.raises(kind) as caught:
            store.put(source, "file")
        assert type(caught.value) is kind
        with pytest.raises(kind):
            store.replace("file", b"after")
    assert store.read("file") == b"before"
    assert names(root) == ["file"]


def test_a_create_that_fails_leaves_the_name_free(store: Store, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails_with(errno.ENOSPC))
        with pytest.raises(NoSpace, match="disk is full; free up space"):
            store.create("manifest.json", b"1")
    assert names(root) == []
    store.create("manifest.json", b"2")
    assert store.read("manifest.json") == b"2"


def test_a_full_disk_that_shows_only_at_mkdir_is_no_traceback(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "mkdir", fails_with(errno.ENOSPC))
    for write in (store.create, store.replace):
        with pytest.raises(NoSpace):
            write("a/b", b"")
    with pytest.raises(NoSpace):
        store.put(source_of(tmp_path, b""), "a/b")


def test_a_file_in_the_way_of_the_store_is_no_traceback(store: Store, root: Path, tmp_path: Path) -> None:
    root.write_bytes(b"")
    for write in (store.create, store.replace):
        with pytest.raises(StorageError):
            write("a/b", b"")
    with pytest.raises(StorageError):
        store.put(source_of(tmp_path, b""), "key")
    assert store.head("key") is None


@pytest.mark.parametrize("key", ["../outside", "/etc/passwd", "a/../../outside", "", ".", "out/secret", "circle/x", "zero\0"])
def test_no_key_leads_out(store: Store, root: Path, tmp_path: Path, key: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_bytes(b"secret")
    root.mkdir()
    (root / "out").symlink_to(tmp_path / "elsewhere")
    (root / "circle").symlink_to(root / "circle")
    for use in (store.read, store.head, store.checksums, lambda key: store.create(key, b""), lambda key: store.replace(key, b"")):
        with pytest.raises(StorageError, match=r"is outside of|not a valid key"):
            use(key)
    assert (tmp_path / "elsewhere" / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("key", ["模型/权重 ü.safetensors", "emoji 👩‍💻", "n" * 255, "%2e%2e", "back\\slash", "new\nline"])
@pytest.mark.parametrize("content", [b"", b"weights"], ids=["empty", "filled"])
def test_any_name_and_an_empty_file_are_kept(store: Store, tmp_path: Path, key: str, content: bytes) -> None:
    stored = store.put(source_of(tmp_path, content), key)
    assert stored.size == len(content)
    assert store.head(key) == StoredFile(len(content))
    assert store.checksums(key) == stored
    assert store.get(key, tmp_path / "back" / "again") == stored
    assert (tmp_path / "back" / "again").read_bytes() == content
    assert not content or stored.sha256 != EMPTY


def test_missing_files_are_named_by_uri(store: Store, root: Path, tmp_path: Path) -> None:
    (root / "folder").mkdir(parents=True)
    for key in ("missing", "folder"):
        assert store.head(key) is None
        for use in (store.read, store.checksums, lambda key: store.get(key, tmp_path / "x")):
            with pytest.raises(NotFound, match=f"file://{root}/{key} does not exist"):
                use(key)


def test_the_size_is_that_of_the_bytes_that_were_digested(store: Store, tmp_path: Path) -> None:
    source = source_of(tmp_path, b"x" * 10)

    def grow(_count: int) -> None:
        if source.stat().st_size < 15:
            with open(source, "ab") as file:
                file.write(b"y" * 5)

    stored = store.put(source, "key", grow)
    assert (stored.size, stored) == (15, store.checksums("key"))


def test_the_next_writer_removes_what_a_killed_one_left_but_not_what_a_living_one_writes(root: Path) -> None:
    root.mkdir()
    target = root / "weights"
    with atomic_file.atomic_write(target) as living:
        living.write(b"living")
        living.flush()
        (left,) = names(root)
        prefix = left.split(".")[1]
        (root / f".{prefix}.dead.part").write_bytes(b"half")
        atomic_file._cleared.clear()  # as in a new process: each looks once
        with atomic_file.atomic_write(target) as file:
            file.write(b"second")
        assert names(root) == sorted([left, "weights"])
    assert names(root) == ["weights"]
    assert target.read_bytes() == b"living"


def test_only_one_at_a_time_is_inside_exclusive(store: Store, root: Path) -> None:
    inside, most = 0, 0
    guard = threading.Lock()

    def enter(_: int) -> None:
        nonlocal inside, most
        for _round in range(3):
            with store.lock("latest.json"):
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(enter, range(6)))
    assert most == 1
    assert names(root) == []


def test_a_scheme_that_cannot_be_exported_to_is_said() -> None:
    with pytest.raises(StorageError, match="hf:// is not a store"):
        open_store("hf://org/name")


def test_one_of_many_swappers_wins_and_a_swap_needs_what_it_names(store: Store, root: Path) -> None:
    assert not store.compare_and_swap("file", b"old", b"new")
    assert store.compare_and_swap("file", None, b"first")
    assert not store.compare_and_swap("file", None, b"new")
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda number: store.compare_and_swap("file", b"first", b"%d" % number), range(8))) == 1
    assert names(root) == ["file"]


def test_a_folder_lists_the_names_directly_in_it(store: Store, root: Path) -> None:
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "sub" / "deep" / "file").write_bytes(b"x")
    (root / "file").write_bytes(b"abc")
    (root / "link").symlink_to("/etc")
    assert store.list_folder(10) == FolderNames(("empty", "sub"), {"file": 3})
    assert store.below("sub").list_folder(10) == FolderNames(("deep",), {})
    assert store.list_folder(2).is_cut


def test_a_missing_folder_has_no_names(store: Store) -> None:
    assert store.below("none").list_folder(10) == FolderNames((), {})
