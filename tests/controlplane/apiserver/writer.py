"""A program that writes to a store with several threads until it is killed, and notes down what it is about to do and what is done.

Each thread owns its objects. A note is one write of the operating system: it survives the kill of this process.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from pathlib import Path

from trainwright.controlplane.apiserver.storage.store import Store

THREADS, NAMES, SIZES = 4, 6, (10, 2000, 60_000)


def write_for_ever(store: Store, notes: Path, seed: int) -> None:
    thread, dice = seed % THREADS, random.Random(seed)
    handle = os.open(notes / f"{thread}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    number = 0
    while True:
        number += 1
        name, stamp = f"{thread}-{dice.randrange(NAMES)}", f"{seed}-{number}"
        deletes = dice.random() < 0.2 and store.get("things", "", name) is not None
        os.write(handle, f"{name} begin {'-' if deletes else stamp}\n".encode())
        if deletes:
            revision = store.delete("things", "", name).revision
        else:
            fill = "x" * dice.choice(SIZES)
            revision = store.put(
                "things", "", name, {"metadata": {"name": name}, "stamp": stamp, "fill": fill, "end": stamp}
            ).revision
        os.write(handle, f"{name} done {revision}\n".encode())


def main() -> None:
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    store = Store(folder / "state.db")
    print(store.revision, flush=True)
    for thread in range(THREADS):
        threading.Thread(target=write_for_ever, args=(store, folder, seed * THREADS + thread), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
