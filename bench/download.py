"""Benchmarks downloading a model from a hub: ours, which verifies each file, and `snapshot_download` of huggingface_hub.

Each client is a separate process, with its imports, against the same local hub in another process, and syncs its files to disk in the
same way. The best of several rounds counts. Options: `--mib` of each of four large files and of the only file of another repository,
`--small` files, `--rounds`, and `--folder` to write to: in memory (tmpfs), a busy disk does not blur the comparison.
"""

from __future__ import annotations

import argparse
import contextlib
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SERVER = Path(__file__).parents[1] / "tests" / "servers" / "hub_server.py"
COMMIT = "0" * 40
GOAL, IMPORT_GOAL = 1.2, 80
OURS = """
import sys
from pathlib import Path
from trainwright.initializers.fetched import FileFilter
from trainwright.initializers.hub import fetch_repository
from trainwright.storage.uri import StorageUri
fetch_repository(StorageUri.parse("hf://org/model"), FileFilter("model"), sys.argv[2], Path(sys.argv[3]), lambda _: lambda _: None)
"""
LIBRARY = """
import sys
from pathlib import Path
from huggingface_hub import snapshot_download
from trainwright.storage.atomic_file import sync_files
snapshot_download("org/model", revision=sys.argv[2], local_dir=sys.argv[3])
sync_files(path for path in Path(sys.argv[3]).iterdir() if path.is_file())
"""
CLIENTS = {"huggingface_hub": LIBRARY, "ours": OURS}
_IMPORT = "import time; began = time.perf_counter(); import trainwright.initializers; print(time.perf_counter() - began)"


@dataclass(frozen=True)
class Cost:
    """CPU seconds of the client, seconds, and the largest resident set in MiB."""

    cpu: float
    wall: float
    rss: float


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder as a repository from another process. Yields the address."""
    process = subprocess.Popen(
        [sys.executable, str(SERVER), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(30)


def measure(code: str, url: str, source: Path, target: Path) -> Cost:
    """Run a client, and compare what it has downloaded with the source."""
    shutil.rmtree(target, ignore_errors=True)
    names = sorted(path.name for path in source.iterdir())
    env = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(target.with_name("hf")), "HF_HUB_DISABLE_XET": "1"}
    env |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code, url, COMMIT, str(target)], env=env)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    # Not read into memory: a child's largest resident set begins with that of its parent.
    assert all(filecmp.cmp(target / name, source / name, shallow=False) for name in names)
    return Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / (1024 if sys.platform == "linux" else 1024 * 1024))


def compare(title: str, source: Path, folder: Path, rounds: int) -> None:
    """Print the costs of both clients, which take turns, and their ratios to the library's."""
    found: dict[str, list[Cost]] = {name: [] for name in CLIENTS}
    with served(source) as url:
        for _ in range(rounds):
            for name, code in CLIENTS.items():
                found[name].append(measure(code, url, source, folder / "target"))
    best = {
        name: Cost(min(c.cpu for c in costs), min(c.wall for c in costs), min(c.rss for c in costs))
        for name, costs in found.items()
    }
    peer = best["huggingface_hub"]
    print(f"{title}, best of {rounds}")
    for name, cost in best.items():
        print(
            f"  {name:18} CPU {cost.cpu:6.2f} s ({cost.cpu / peer.cpu:4.2f})   wall {cost.wall:6.2f} s ({cost.wall / peer.wall:4.2f})"
            f"   memory {cost.rss:5.0f} MiB ({cost.rss / peer.rss:4.2f})"
        )
    ratio = best["ours"].cpu / peer.cpu
    print(f"  CPU of ours to the library's: {ratio:.2f}   goal {GOAL}   {'reached' if ratio <= GOAL else 'MISSED'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=320)
    parser.add_argument("--small", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    imports = [float(subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, check=True).stdout) for _ in range(5)]
    print(f"import trainwright.initializers {min(imports) * 1e3:.1f} ms   goal {IMPORT_GOAL}")
    with tempfile.TemporaryDirectory(dir=options.folder) as text:
        folder = Path(text)
        (folder / "large").mkdir()
        for number in range(4):
            with open(folder / "large" / f"{number}.safetensors", "wb") as file:
                for _ in range(options.mib):
                    file.write(os.urandom(1 << 20))
        compare(f"four files of {options.mib} MiB", folder / "large", folder, options.rounds)
        for number in range(3):
            (folder / "large" / f"{number}.safetensors").unlink()
        compare(f"one file of {options.mib} MiB", folder / "large", folder, options.rounds)
        shutil.rmtree(folder / "large")
        (folder / "small").mkdir()
        for number in range(options.small):
            (folder / "small" / f"{number}.json").write_bytes(os.urandom(1024))
        compare(f"{options.small} files of 1 KiB", folder / "small", folder, options.rounds)


if __name__ == "__main__":
    main()
