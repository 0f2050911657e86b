"""Benchmarks a data cache against reading the same Parquet: two readers, each with its half, in the same two epochs.

Head and workers run as in pods, as processes with addresses of their own, in the environment `data-cache`. Linux.
`python bench/data_cache.py [--rows N] [--open]` prints megabytes of Arrow data in a second, of both readers together.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from trainwright.api.names import CACHE_HOST
from trainwright.controlplane.environments import EnvironmentStore
from trainwright.controlplane.environments.definition import bundled_environments
from trainwright.materialize import RandomKeys

READERS, WORKERS, EPOCHS, FILES, PORT = 2, 2, 2, 8, 50051
HEAD = "127.77.0.1"
MAKE = """
import random, sys, pyarrow as pa, pyarrow.parquet as pq
folder, rows, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
words = ["ferry", "harbour", "captain", "lantern", "tide", "anchor", "storm", "island"]
for number in range(files):
    rng = random.Random(number)
    pick = rng.choices(range(1000), k=rows // files)
    texts = [" ".join(rng.choices(words, k=30)) for _ in range(1000)]
    columns = {"id": pa.array(range(rows // files), pa.int64()), "text": [texts[p] for p in pick]}
    columns |= {f"x{n}": [rng.random() for _ in range(rows // files)] for n in range(8)}
    pq.write_table(pa.table(columns), f"{folder}/{number}.parquet", compression="zstd")
"""
CACHE = """
import json, sys, time
from trainwright.datacache.reader import CacheReader
reader = CacheReader(sys.argv[1], rank=int(sys.argv[2]), readers=int(sys.argv[3]))
for _ in range(int(sys.argv[4])):
    started, rows, size = time.time(), 0, 0
    for batch in reader.batches():
        rows, size = rows + batch.num_rows, size + batch.nbytes
    print(json.dumps([started, time.time(), rows, size]), flush=True)
"""
PARQUET = """
import json, sys, time, glob
import pyarrow.parquet as pq
files = sorted(glob.glob(sys.argv[1] + "/*.parquet"))[int(sys.argv[2])::int(sys.argv[3])]
for _ in range(int(sys.argv[4])):
    started, rows, size = time.time(), 0, 0
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(65536, use_threads=False):
            rows, size = rows + batch.num_rows, size + batch.nbytes
    print(json.dumps([started, time.time(), rows, size]), flush=True)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_600_000)
    parser.add_argument("--open", action="store_true", help="a cache without a key")
    arguments = parser.parse_args()
    rows, key = arguments.rows, RandomKeys()
    keys = {"TRAINWRIGHT_CACHE_ASSIGN_TOKEN": key.token()} | (
        {"CACHE_OPEN": "true"} if arguments.open else {"TRAINWRIGHT_CACHE_KEY": key.tls(CACHE_HOST)}
    )
    definition = next(each for each in bundled_environments() if each.name == "data-cache")
    python = str(EnvironmentStore.chosen().prepare(definition).path / "bin" / "python")
    with tempfile.TemporaryDirectory(prefix="data-cache-") as folder:
        subprocess.run([python, "-c", MAKE, folder, str(rows), str(FILES)], check=True)
        started = time.monotonic()
        with cache(python, folder, keys):
            loaded = time.monotonic() - started
            scheme = "grpc" if arguments.open else "grpc+tls"
            cached = measure(python, CACHE, f"{scheme}://{HEAD}:{PORT}", keys)
        own = measure(python, PARQUET, folder, {})
    print(f"rows={rows} readers={READERS} workers={WORKERS} seconds_to_start_and_load={loaded:.1f}")
    for epoch, (with_cache, without) in enumerate(zip(cached, own, strict=True)):
        print(f"epoch={epoch} cache={with_cache:.0f} MB/s parquet={without:.0f} MB/s ratio={with_cache / without:.2f}")
    return 0


@contextmanager
def cache(python: str, folder: str, keys: dict[str, str]) -> Iterator[None]:
    """Run a cache of the Parquet files in a folder, from when it is ready."""
    addresses = [f"127.77.0.{number + 2}" for number in range(WORKERS)]
    env = {**os.environ, **keys, "METADATA_LOC": folder, "WORKERS": ",".join(f"{address}:{PORT}" for address in addresses)}
    roles = [("worker", address) for address in addresses] + [("head", HEAD)]
    command = [python, "-m", "trainwright.datacache"]
    running = [
        subprocess.Popen([*command, role, address, str(PORT)], env=env, stderr=subprocess.DEVNULL) for role, address in roles
    ]
    try:
        while not _is_ready():
            if any(process.poll() is not None for process in running):
                raise SystemExit("a process of the cache has ended")
            time.sleep(0.05)
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


def measure(python: str, program: str, source: str, env: dict[str, str]) -> list[float]:
    """Return the MB/s of all readers together, for each epoch."""
    commands = [[python, "-c", program, source, str(rank), str(READERS), str(EPOCHS)] for rank in range(READERS)]
    running = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}) for each in commands]
    outputs = [[json.loads(line) for line in process.communicate()[0].splitlines()] for process in running]
    speeds = []
    for epoch in zip(*outputs, strict=True):
        seconds = max(end for _, end, _, _ in epoch) - min(start for start, _, _, _ in epoch)
        speeds.append(sum(size for *_, size in epoch) / seconds / 1e6)
    return speeds


def _is_ready() -> bool:
    try:
        with urllib.request.urlopen(f"http://{HEAD}:8080/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


if __name__ == "__main__":
    sys.exit(main())
