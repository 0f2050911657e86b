"""Benchmarks exporting and restoring a checkpoint against bare obstore, with a real S3 server on loopback.

Each figure is of a process of its own: CPU seconds of the client alone (the server's are printed apart), wall-clock seconds, and the
peak of its memory. The peer sends and fetches the same files with obstore's own defaults, signed, without any check of contents;
of its two runs, one file after another and two at once, the cheaper one counts. `--small` is a quick run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from servers.s3_server import BUCKET, S3Server, running_server

SHARDS = 8
RATIOS = {"export CPU": 1.15, "export wall": 1.10, "restore CPU": 1.30}

MEASURE = """
import json, os, resource, sys, time
from pathlib import Path
started, cpu = time.monotonic(), time.process_time()
{work}
peak = next((int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")), 0)
print(json.dumps({{"cpu": time.process_time(), "wall": time.monotonic() - started, "mib": peak, **globals().get("result", {{}})}}))
"""
PEER = """
from concurrent.futures import ThreadPoolExecutor
import obstore
from obstore.store import S3Store
action, prefix, folder, at_once = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
store = S3Store("{bucket}", endpoint=os.environ["AWS_ENDPOINT_URL"], region="us-east-1", client_options={{"allow_http": True}},
                access_key_id=os.environ["AWS_ACCESS_KEY_ID"], secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"])
def send(path):
    obstore.put(store, f"{{prefix}}/{{path.relative_to(folder)}}", path)
def fetch(key):
    target = folder / key.removeprefix(prefix + "/")
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb") as file:
        for chunk in obstore.get(store, key).stream(min_chunk_size=4 * 1024 * 1024):
            file.write(chunk)
items = [p for p in sorted(folder.rglob("*")) if p.is_file()] if action == "send" else [
    each["path"] for batch in obstore.list(store, prefix) for each in batch]
with ThreadPoolExecutor(at_once) as pool:
    list(pool.map(send if action == "send" else fetch, items))
"""
EXPORT = """
from trainwright.checkpoints import pin
from trainwright.checkpoints.publish import export_checkpoint
pin.QUIET_SECONDS = 0.0
exported = export_checkpoint(Path(sys.argv[1]), sys.argv[2], source="bench")
result = {"uri": exported.uri, "existed": exported.existed, "referenced": sum(f.key.startswith("..") for f in exported.manifest.files)}
"""
RESTORE = """
from trainwright.checkpoints.restore import restore_checkpoint
restore_checkpoint(sys.argv[1], Path(sys.argv[2]))
"""


def safetensors(path: Path, size: int) -> None:
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(size // 2**20):
            file.write(os.urandom(2**20))


def write_checkpoint(folder: Path, step: int, small_files: int, small_size: int | None) -> None:
    """A checkpoint of transformers' Trainer with shards, and many small files besides."""
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
    (folder / "config.json").write_text("{}")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("archive/data.pkl", b"x")
    for number in range(small_files):
        (folder / f"small-{number:05}.json").write_bytes(os.urandom(small_size or 200 + number * 300))


def write_shards(folder: Path, mib: int) -> None:
    names = [f"model-{number + 1:05}-of-{SHARDS:05}.safetensors" for number in range(SHARDS)]
    for name in names:
        safetensors(folder / name, mib * 2**20)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict(enumerate(names))}))


def measure(work: str, *arguments: str, env: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(work=work), *arguments], env=env, check=True, stdout=subprocess.PIPE
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def server_cpu() -> float:
    """CPU seconds of all processes of the S3 server."""
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if "weed" in (folder / "cmdline").read_text().split("\0")[0]:
                ticks += sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def counting_proxy(server: S3Server) -> Iterator[tuple[str, dict[str, int]]]:
    """An address in front of the server, and the bytes sent to it and received from it."""
    port = int(server.endpoint.rpartition(":")[2])
    counts = {"sent": 0, "received": 0}

    def pump(source: socket.socket, target: socket.socket, name: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                counts[name] += len(data)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                upstream = socket.create_connection(("127.0.0.1", port))
                threading.Thread(target=pump, args=(client, upstream, "sent"), daemon=True).start()
                threading.Thread(target=pump, args=(upstream, client, "received"), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", counts


def show(name: str, found: dict[str, Any]) -> None:
    print(f"{name:<34} {found['cpu']:7.2f} CPU s {found['wall']:7.2f} s {found['mib']:6} MiB", flush=True)


def large(server: S3Server, env: dict[str, str], root: Path, shard_mib: int) -> None:
    output, peer = root / "output", PEER.format(bucket=BUCKET)
    checkpoint = output / "checkpoint-10"
    write_checkpoint(checkpoint, 10, 195, None)
    write_shards(checkpoint, shard_mib)
    size = sum(path.stat().st_size for path in checkpoint.iterdir())
    print(f"# {len(list(checkpoint.iterdir()))} files, {size / 1e6:.0f} MB")
    bare = []
    for at_once in (1, 2):
        bare.append(measure(peer, "send", f"bare-{at_once}", str(checkpoint), str(at_once), env=env))
        show(f"obstore put, {at_once} at once", bare[-1])
    before = server_cpu()
    ours = measure(EXPORT, str(output), f"s3://{BUCKET}/run", env=env)
    show("export", ours)
    print(f"{'server':<34} {server_cpu() - before:7.2f} CPU s")
    ratio("export CPU", ours["cpu"] / min(each["cpu"] for each in bare))
    ratio("export wall", ours["wall"] / min(each["wall"] for each in bare))

    with counting_proxy(server) as (address, counts):
        again = measure(EXPORT, str(output), f"s3://{BUCKET}/run", env={**env, "AWS_ENDPOINT_URL": address})
        assert again["existed"]
        show("export again, unchanged", again)
        print(f"  sent {counts['sent'] / 1e6:.2f} MB, received {counts['received'] / 1e6:.2f} MB of {size / 1e6:.0f} MB")
    shutil.copytree(checkpoint, output / "checkpoint-20", copy_function=os.link)
    for name, content in (("trainer_state.json", b'{"global_step": 20, "log_history": []}'),):
        (output / "checkpoint-20" / name).unlink()
        (output / "checkpoint-20" / name).write_bytes(content)
    changed = output / "checkpoint-20" / f"model-00003-of-{SHARDS:05}.safetensors"
    changed.unlink()
    safetensors(changed, shard_mib * 2**20)
    with counting_proxy(server) as (address, counts):
        show(
            "export, one of eight shards changed",
            measure(EXPORT, str(output), f"s3://{BUCKET}/run", env={**env, "AWS_ENDPOINT_URL": address}),
        )
        print(f"  sent {counts['sent'] / size:.1%} of the bytes (goal: {1 / 6:.1%})")

    fetched = []
    for at_once in (1, 2):
        fetched.append(measure(peer, "fetch", "bare-1", str(root / f"fetched-{at_once}"), str(at_once), env=env))
        shutil.rmtree(root / f"fetched-{at_once}")
        show(f"obstore get, {at_once} at once", fetched[-1])
    restored = measure(RESTORE, ours["uri"], str(root / "restored"), env=env)
    shutil.rmtree(root / "restored")
    show("restore, verified", restored)
    ratio("restore CPU", restored["cpu"] / min(each["cpu"] for each in fetched))


def many(env: dict[str, str], root: Path, files: int) -> None:
    output = root / "many"
    write_checkpoint(output / "checkpoint-10", 10, files, 1024)
    safetensors(output / "checkpoint-10" / "model.safetensors", 2**20)
    print(f"# {files} files of 1 KiB")
    for name, target, goal in (("s3", f"s3://{BUCKET}/many", 12), ("file", f"file://{root}/exports", 5)):
        found = measure(EXPORT, str(output), target, env=env)
        show(f"export to {name}:// (goal {goal} s)", found)
        show(f"restore from {name}:// (goal {goal} s)", measure(RESTORE, found["uri"], str(root / f"many-{name}"), env=env))


def ratio(name: str, value: float) -> None:
    print(f"  {name}: {value:.2f} times the peer (goal: {RATIOS[name]:.2f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--small", action="store_true", help="shards of 8 MiB instead of 160, and 1,000 small files instead of 10,000"
    )
    small = parser.parse_args().small
    memory = Path("/dev/shm")  # noqa: S108
    base = memory if memory.is_dir() and shutil.disk_usage(memory).free > 8 * 2**30 else None
    with tempfile.TemporaryDirectory(dir=base) as folder, running_server() as server:
        env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | server.environment
        large(server, env, Path(folder), 8 if small else 160)
    with tempfile.TemporaryDirectory() as folder, running_server() as server:
        env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | server.environment
        many(env, Path(folder), 1_000 if small else 10_000)


if __name__ == "__main__":
    main()
