"""What the build fetches: npm itself, on a registry of one package."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.client_environments import ROOT

NPM = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed: install Node, which brings it")
VENDOR = Path("trainwright/ui/static/vendor")


def packed(content: bytes) -> bytes:
    """Return the package `htm` as npm packs it."""
    package = io.BytesIO()
    with tarfile.open(fileobj=package, mode="w:gz") as archive:
        for name, text in {"package.json": b'{"name": "htm", "version": "3.1.1"}', "code.js": content}.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return package.getvalue()


PACKAGE = packed(b"export default 1;\n")


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The address of a registry that serves `PACKAGE`."""

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            version = {"name": "htm", "version": "3.1.1", "dist": {"tarball": f"{address}/htm/-/htm-3.1.1.tgz"}}
            listed = {"name": "htm", "dist-tags": {"latest": "3.1.1"}, "versions": {"3.1.1": version}}
            body = PACKAGE if self.path.endswith(".tgz") else json.dumps(listed).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield address
    server.shutdown()
    server.server_close()


def bring(tree: Path, address: str, digest_of: bytes) -> subprocess.CompletedProcess[str]:
    """Bring `htm` into a new tree whose lock has the digest of these bytes."""
    integrity = f"sha512-{base64.b64encode(hashlib.sha512(digest_of).digest()).decode()}"
    wanted = {"dependencies": {"htm": "3.1.1"}}
    lock = {"lockfileVersion": 3, "packages": {"": wanted, "node_modules/htm": {"version": "3.1.1", "integrity": integrity}}}
    (tree / VENDOR).parent.mkdir(parents=True)
    (tree / "package.json").write_text(json.dumps(wanted), "utf-8")
    (tree / "package-lock.json").write_text(json.dumps(lock), "utf-8")
    shutil.copy(ROOT / "setup.py", tree)
    files = "{'htm.js': 'htm/code.js', 'package-lock.json': '../package-lock.json'}"
    code = f"import setup; setup.FILES = {files}; setup.bring_vendored_files()"
    env = {**os.environ, "NPM_CONFIG_REGISTRY": address, "NPM_CONFIG_CACHE": str(tree / "cache"), "PYTHONPATH": str(tree)}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=tree, env=env, capture_output=True, text=True, timeout=60, check=False
    )


@NPM
@pytest.mark.medium
def test_package_with_the_digest_of_the_lock_is_brought(tmp_path: Path, registry: str) -> None:
    done = bring(tmp_path, registry, PACKAGE)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / VENDOR / "htm.js").read_bytes() == b"export default 1;\n"


@NPM
@pytest.mark.medium
def test_package_with_another_digest_ends_the_build(tmp_path: Path, registry: str) -> None:
    done = bring(tmp_path, registry, packed(b"export default 2;\n"))
    assert done.returncode == 1
    assert "serves another file than the lock names" in done.stderr
    assert not (tmp_path / VENDOR).exists()


@NPM
@pytest.mark.medium
def test_build_ends_well_without_a_registry(tmp_path: Path) -> None:
    done = bring(tmp_path, "http://127.0.0.1:9", PACKAGE)
    assert done.returncode == 0
    assert "the page's scripts were not fetched" in done.stderr
    assert not (tmp_path / VENDOR).exists()


def test_lock_has_a_digest_and_no_address_for_each_package() -> None:
    wanted = json.loads((ROOT / "package.json").read_text("utf-8"))
    packages = json.loads((ROOT / "package-lock.json").read_text("utf-8"))["packages"]
    del packages[""]
    assert {name.removeprefix("node_modules/"): each["version"] for name, each in packages.items()} == {
        **wanted["dependencies"],
        **wanted["devDependencies"],
    }
    assert all(each["integrity"].startswith("sha512-") and "resolved" not in each for each in packages.values())
