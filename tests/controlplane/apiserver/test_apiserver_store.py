"""The store: compare-and-swap, history, watchers, and what is left after a restart or on a full disk."""

from __future__ import annotations

import sqlite3
import stat
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.api.errors import Expired
from trainwright.api.names import JOB_NAME_LABEL
from trainwright.controlplane.apiserver.storage.events import HISTORY_BYTES
from trainwright.controlplane.apiserver.storage.journal import RESTART_GAP
from trainwright.controlplane.apiserver.storage.object_table import RECENT_BYTES
from trainwright.controlplane.apiserver.storage.store import RevisionMismatch, Store
from trainwright.controlplane.apiserver.wire.api_errors import StorageFailed

THINGS = "things.example.com"


def thing(value: Any = 0, **metadata: Any) -> dict[str, Any]:
    return {"kind": "Thing", "metadata": metadata, "value": value}


def test_forgotten_revisions_are_expired() -> None:
    store = Store(":memory:", ring_size=3)
    for number in range(6):
        store.put(THINGS, "", "a", thing(number))
    assert [event.record.object["value"] for event in store.events_since(3)] == [3, 4, 5]
    with pytest.raises(Expired, match=r"too old resource version: 2 \(3\)"):
        store.events_since(2)
    with pytest.raises(Expired):
        store.subscribe(THINGS, since=2)


def test_subscription_joins_past_and_future_without_gap_or_repetition(store: Store) -> None:
    store.put(THINGS, "n", "a", thing(0))
    since = store.revision
    store.put(THINGS, "n", "a", thing(1))
    store.put("others", "n", "a", thing(99))
    subscription = store.subscribe(THINGS, "n", since)
    store.put(THINGS, "n", "a", thing(2))
    store.put(THINGS, "m", "a", thing(99))
    store.delete(THINGS, "n", "a")
    events = subscription.take()
    assert [(event.type, event.record.object["value"]) for event in events] == [("MODIFIED", 1), ("MODIFIED", 2), ("DELETED", 2)]
    assert events[-1].record.object["metadata"]["resourceVersion"] == str(store.revision)
    assert [event.previous.object["value"] for event in events if event.previous] == [0, 1, 2]
    assert subscription.take() == []


def test_subscription_from_the_future_stays_silent_until_then(store: Store) -> None:
    subscription = store.subscribe(THINGS, since=2)
    for number in range(3):
        store.put(THINGS, "", "a", thing(number))
    assert [event.record.object["value"] for event in subscription.take()] == [2]


def test_slow_subscriber_is_closed_and_the_writer_does_not_wait() -> None:
    store = Store(":memory:", queue_size=2)
    slow, woken = store.subscribe(THINGS), []
    other = store.subscribe(THINGS, wake=lambda: woken.append(1))
    for number in range(3):
        store.put(THINGS, "", "a", thing(number))
        other.take()
    assert (slow.overflowed, slow.ended, slow.take()) == (True, True, [])
    assert (other.ended, len(woken)) == (False, 3)


def test_progress_speaks_only_of_what_was_heard(store: Store) -> None:
    subscription = store.subscribe(THINGS)
    store.put("others", "", "a", thing())
    assert store.progress(subscription) == 1
    store.put(THINGS, "", "a", thing())
    store.put("others", "", "a", thing())
    assert store.progress(subscription) == 1
    subscription.take()
    assert store.progress(subscription) == 3


def test_waiting_reader_is_woken_by_a_write_and_by_the_end(store: Store) -> None:
    subscription = store.subscribe(THINGS)
    taken: list[Any] = []
    reader = threading.Thread(target=lambda: taken.extend([subscription.take(30), subscription.take(30)]))
    reader.start()
    store.put(THINGS, "", "a", thing())
    reader.join(0.2)
    store.close()
    reader.join(10)
    assert not reader.is_alive()
    assert [len(events) for events in taken] == [1, 0]
    assert subscription.ended


def test_restart_keeps_objects_and_expires_old_watches(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = Store(path)
    store.put(THINGS, "n", "a", thing(1))
    gone = store.put(THINGS, "n", "b", thing(2)).revision
    store.delete(THINGS, "n", "b")
    last = store.revision
    store.close()

    again = Store(path)
    assert [record.object["value"] for record in again.list(THINGS)[0]] == [1]
    assert again.revision >= last + RESTART_GAP
    with pytest.raises(Expired):
        again.subscribe(THINGS, since=gone)
    with pytest.raises(Expired):
        again.subscribe(THINGS, since=last)
    assert again.subscribe(THINGS, since=again.revision).take() == []
    assert again.put(THINGS, "n", "c", thing(3)).revision > last + RESTART_GAP
    again.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_writes_survive_without_a_clean_close(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    store.put(THINGS, "", "a", thing(1))
    # A second reader of the file sees what a restart after a kill would see.
    with sqlite3.connect(tmp_path / "store.db") as reader:
        assert reader.execute("SELECT name, revision FROM current").fetchall() == [("a", 1)]
    store.close()


def test_deleted_and_replaced_secrets_are_gone_from_the_files(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    secrets = [f"s3cret-{number}-".encode() * 300 for number in range(3)]  # more than a page
    store.put("secrets", "default", "kept", {"metadata": {}, "data": secrets[0].decode()})
    store.put("secrets", "default", "gone", {"metadata": {}, "data": secrets[1].decode()})
    store.put("secrets", "default", "kept", {"metadata": {}, "data": secrets[2].decode()})
    store.delete("secrets", "default", "gone")
    found = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert [secret[:9] in found for secret in secrets] == [False, False, True]
    store.close()


def test_writes_of_one_lock_are_decided_together_and_seen_together(store: Store) -> None:
    subscription = store.subscribe(THINGS)
    with store.locked():
        first = store.put(THINGS, "", "a", thing(1))
        assert store.get(THINGS, "", "a") is first
        assert [record.key for record in store.list(THINGS)[0]] == [("", "a")]
        store.delete(THINGS, "", "a", expected=first.revision)
        assert store.get(THINGS, "", "a") is None
        store.put(THINGS, "", "b", thing(2), expected=0)
        assert subscription.take() == []
        assert store.revision == 0
    assert [event.type for event in subscription.take()] == ["ADDED", "DELETED", "ADDED"]
    assert [record.key for record in store.list(THINGS)[0]] == [("", "b")]


def test_deferred_writes_are_seen_when_they_are_settled(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    with store.deferred():
        store.put(THINGS, "", "a", thing(1))
    assert (store.get(THINGS, "", "a"), store.revision, store.accepted_revision) == (None, 0, 1)
    # A decision that comes before the disk knows what was decided.
    with store.deferred(), pytest.raises(RevisionMismatch):
        store.put(THINGS, "", "a", thing(2), expected=0)
    store.flush(store.accepted_revision)
    found = store.get(THINGS, "", "a")
    assert found is not None
    assert found.object["value"] == 1
    store.close()


def test_failed_batch_takes_everything_back_that_was_built_on_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    before = store.put(THINGS, "", "a", thing("before"))
    pages = store._journal._db.execute("PRAGMA page_count").fetchone()[0]
    store._journal._db.execute(f"PRAGMA max_page_count = {pages}")
    with store.deferred():
        store.put(THINGS, "", "b", thing("x" * 100_000))
        large = store.accepted_revision
        store.put(THINGS, "", "a", thing("after"), expected=before.revision)
    for revision in (large, store.accepted_revision):
        with pytest.raises(StorageFailed):
            store.flush(revision)
    store._journal._db.execute("PRAGMA max_page_count = 100000")
    assert store.get(THINGS, "", "a") is before
    assert store.put(THINGS, "", "a", thing("again"), expected=before.revision).revision > large
    store.close()


@pytest.mark.medium
def test_many_writers_share_transactions_and_lose_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db", durability="full")
    batches, append = [], store._journal.append
    store._journal.append = lambda changes: (batches.append(len(changes)), append(changes))  # type: ignore[func-returns-value, assignment]

    def write(number: int) -> None:
        for count in range(50):
            store.put(THINGS, "", f"{number}-{count}", thing(count), expected=0)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert sum(batches) == 400
    assert [event.revision for event in store.events_since(0)] == list(range(1, 401))
    store.close()
    assert len(Store(tmp_path / "store.db").list(THINGS)[0]) == 400


def test_old_objects_of_a_large_collection_are_packed_and_come_back_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwright.controlplane.apiserver.storage.object_table.SMALL_COLLECTION", 3)
    monkeypatch.setattr("trainwright.controlplane.apiserver.storage.object_table.RECENT", 4)
    store = Store(tmp_path / "store.db")
    for number in range(10):
        store.put(THINGS, "", str(number), thing("x" * 1000 + str(number), labels={"team": "ö"}))
    for _ in range(2):
        packed = [record for record in store.list(THINGS)[0] if len(record._data) < 500]
        assert len(packed) >= 6
        assert [record.object["value"][1000:] for record in store.list(THINGS)[0]] == [str(number) for number in range(10)]
        assert orjson.loads(packed[0].data) == packed[0].object
        store.close()
        store = Store(tmp_path / "store.db")
    assert store.put(THINGS, "", "0", thing("y"), expected=store.get(THINGS, "", "0").revision).object["value"] == "y"  # type: ignore[union-attr]
    store.close()


def test_objects_are_found_by_label() -> None:
    store, label = Store(":memory:"), (JOB_NAME_LABEL, "train")
    for namespace, name, job in (("n", "b", "train"), ("n", "a", "train"), ("m", "a", "train"), ("n", "c", "other")):
        store.put(THINGS, namespace, name, thing(labels={JOB_NAME_LABEL: job}))
    assert [record.key for record in store.list(THINGS, label=label)[0]] == [("m", "a"), ("n", "a"), ("n", "b")]
    store.put(THINGS, "n", "a", thing())
    store.delete(THINGS, "m", "a")
    assert [record.key for record in store.list(THINGS, "n", label=label)[0]] == [("n", "b")]


keys = st.tuples(st.sampled_from(["r1", "r2"]), st.sampled_from(["", "n"]), st.sampled_from(["a", "b"]))
steps = st.lists(st.tuples(st.sampled_from(["put", "swap", "delete"]), keys, st.integers(0, 3)), max_size=40)


@pytest.mark.medium
@settings(deadline=None)
@given(steps)
def test_store_behaves_like_a_dict_with_versions(operations: list[tuple[str, tuple[str, str, str], int]]) -> None:
    store = Store(":memory:")
    model: dict[tuple[str, str, str], tuple[int, int]] = {}
    snapshots: dict[int, dict[tuple[str, str, str], tuple[int, int]]] = {0: {}}
    for operation, key, value in operations:
        held = model.get(key, (0, 0))
        try:
            if operation == "put":
                model[key] = (store.put(*key, named(key, value)).revision, value)
            elif operation == "swap":
                model[key] = (store.put(*key, named(key, value), expected=value).revision, value)
            else:
                store.delete(*key)
                del model[key]
        except RevisionMismatch as error:
            forbidden_error = error.found
            assert forbidden_error == held[0]
            assert operation == "delete" or value != held[0]
        snapshots[store.revision] = dict(model)
        for resource in ("r1", "r2"):
            found = {(resource, *_key(record)): (record.revision, record.object["value"]) for record in store.list(resource)[0]}
            assert found == {k: v for k, v in model.items() if k[0] == resource}
    for revision, snapshot in snapshots.items():
        found = {_key(record): record.object["value"] for record in store.list_at("r1", None, revision)}
        assert found == {k[1:]: v[1] for k, v in snapshot.items() if k[0] == "r1"}
    revisions = [event.revision for event in store.events_since(0)]
    assert revisions == list(range(1, store.revision + 1))
    store.close()


def named(key: tuple[str, str, str], value: int) -> dict[str, Any]:
    return thing(value, namespace=key[1], name=key[2])


def _key(record: Any) -> tuple[str, str]:
    return (record.object["metadata"]["namespace"], record.object["metadata"]["name"])


@pytest.mark.medium
def test_large_objects_are_remembered_in_smaller_numbers(store: Store) -> None:
    """Hundreds of megabytes written over and over take no more memory than some."""
    subscription = store.subscribe(THINGS)
    first = store.put(THINGS, "", "a", thing("x" * 1_000_000)).revision
    for _ in range(100):
        store.put(THINGS, "", "a", thing("x" * 1_000_000))
    assert store._history._events.bytes <= HISTORY_BYTES
    assert store._objects._recent.bytes <= RECENT_BYTES
    assert subscription.overflowed
    assert not subscription.take()
    with pytest.raises(Expired):
        store.events_since(first)
    assert len(store.events_since(store.revision - 10)) == 10
