"""Google's and Azure's stores keep the same promises as S3: a real emulator, and a server of our own where there is none."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from servers import azure_server, gcs_server

from trainwright.storage import open_store
from trainwright.storage.errors import AlreadyExists, NoAccess, NoBucket, NotFound, StorageError
from trainwright.storage.objects.object_store import ObjectStore
from trainwright.storage.objects.upload import PART
from trainwright.storage.store import Capabilities, FolderNames, StoredFile

pytestmark = pytest.mark.medium

NAMES = ["plain.txt", "nested/ü/é 漢字.txt", "a%20b%2Fc", "a+b&c=d?e#f", "sp ace x", ".hidden", "x" * 200]


@pytest.fixture(scope="module")
def azure() -> Iterator[azure_server.AzureServer]:
    with azure_server.running_azurite() as server:
        yield server


@pytest.fixture(params=["gs", pytest.param("az", marks=pytest.mark.slow)])
def folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URI of a folder that nobody else uses."""
    for name in [name for name in os.environ if name.startswith(("AZURE_", "GOOGLE_", "STORAGE_EMULATOR"))]:
        monkeypatch.delenv(name)
    prefix = os.urandom(6).hex()
    if request.param == "gs":
        with gcs_server.gcs_server() as server:
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.address)
            yield f"gs://{gcs_server.BUCKET}/{prefix}"
        return
    for name, value in request.getfixturevalue("azure").environment.items():
        monkeypatch.setenv(name, value)
    yield f"az://{azure_server.CONTAINER}/{prefix}"


@pytest.fixture
def store(folder: str) -> ObjectStore:
    opened = open_store(folder)
    assert isinstance(opened, ObjectStore)
    return opened


def test_capabilities_are_detected(store: ObjectStore) -> None:
    assert store.capabilities() == Capabilities(conditional_writes=True, checks_uploads=False)
    assert list(store.list_files()) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_comes_back(store: ObjectStore, tmp_path: Path, name: str) -> None:
    content = os.urandom(1000)
    (tmp_path / "source").write_bytes(content)
    sent = store.put(tmp_path / "source", name)
    assert (store.checksums(name), store.inspect(name)) == (sent, StoredFile(1000))
    assert store.get(name, tmp_path / "back" / "x") == sent
    assert store.read_range(name, 5, 10) == content[5:15]
    assert list(store.list_files()) == [(name, 1000)]
    store.delete(name)
    store.delete(name)
    assert store.head(name) is None


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 3 * PART])
def test_a_file_of_any_size_comes_back(store: ObjectStore, tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "source").write_bytes(content)
    sent = store.put(tmp_path / "source", "file")
    assert store.get("file", tmp_path / "back") == sent
    assert (tmp_path / "back").read_bytes() == content


def test_every_page_is_listed(store: ObjectStore) -> None:
    for number in range(12):
        store.replace(f"sub/{number:02}", b"x")
    assert sorted(store.list_files("sub")) == [(f"sub/{number:02}", 1) for number in range(12)]


def test_a_folder_lists_the_names_directly_in_it(store: ObjectStore) -> None:
    for key in ("file", "sub/a", "sub/deep/b", "x y/é"):
        store.replace(key, b"abc")
    assert store.list_folder(10) == FolderNames(("sub", "x y"), {"file": 3})
    assert store.below("sub").list_folder(10) == FolderNames(("deep",), {"a": 3})
    assert store.list_folder(1) == FolderNames((), {"file": 3}, is_cut=True)
    assert store.below("none").list_folder(10) == FolderNames((), {})


def test_one_of_many_creators_wins_and_one_of_many_swappers(store: ObjectStore) -> None:
    barrier = threading.Barrier(6)

    def create(number: int) -> int:
        barrier.wait()
        try:
            store.create("one", b"%d" % number)
        except AlreadyExists:
            return 0
        return 1

    def swap(number: int) -> bool:
        barrier.wait()
        return store.compare_and_swap("one", before, b"new %d" % number)

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(create, range(6))) == 1
        before = store.read("one")
        assert sum(pool.map(swap, range(6))) == 1
    assert not store.compare_and_swap("one", b"old", b"new")
    assert not store.compare_and_swap("one", None, b"new")


def test_one_at_a_time_holds_the_lock(store: ObjectStore) -> None:
    inside: list[int] = []

    def enter(number: int) -> int:
        with store.lock("x") as lock:
            inside.append(number)
            lock.require()
            most = len(inside)
            inside.remove(number)
        return most

    with ThreadPoolExecutor(3) as pool:
        assert set(pool.map(enter, range(3))) == {1}
    assert list(store.list_files()) == []


def test_missing_objects_and_buckets_are_named(store: ObjectStore, folder: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="none does not exist"):
        store.read("none")
    scheme = folder.partition(":")[0]
    with pytest.raises((NoBucket, StorageError), match=r"no-such-bucket"):
        open_store(f"{scheme}://no-such-bucket/x").replace("a", b"")


def test_wrong_credentials_are_one_line(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if folder.startswith("gs"):
        pytest.skip("the server of the tests checks no credentials")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")
    with pytest.raises(NoAccess, match="check AZURE_STORAGE_ACCOUNT_NAME") as caught:
        open_store(folder).read("a")
    assert "d3Jvbmc=" not in str(caught.value)
    assert "\n" not in str(caught.value)
