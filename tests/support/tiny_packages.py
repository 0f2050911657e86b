"""Small wheels in a folder, and the variables by which uv finds these packages and no others."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path


def write_wheel(folder: Path, name: str, version: str, requires: str = "", *, tag: str = "py3-none-any") -> Path:
    """Write a wheel with a module `name`, whose VERSION is the version, and a program of that name that prints it."""
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + (f"Requires-Dist: {requires}\n" if requires else "")
    files = {
        f"{name}.py": f"VERSION = {version!r}\ndef main():\n    print({name!r}, VERSION)\n",
        f"{about}/METADATA": metadata,
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    wheel = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{about}/RECORD", "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD")))
    return wheel


def write_sdist(folder: Path, name: str, version: str, marker: Path) -> Path:
    """Write a source distribution that is built without other packages, and then writes a file."""
    backend = (
        f"from pathlib import Path\nPath({str(marker)!r}).write_text('built')\n"
        "def build_wheel(*arguments, **settings):\n    raise SystemExit('not meant to be built')\n"
    )
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": backend,
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    archive = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for path, text in files.items():
            content = text.encode()
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive


def locked(*files: Path) -> str:
    """Return a lock with the hashes of these files, by their names and versions."""
    hashes: dict[str, list[str]] = {}
    for file in files:
        name, version, *_ = file.name.removesuffix(".tar.gz").split("-")
        hashes.setdefault(f"{name}=={version}", []).append(hashlib.sha256(file.read_bytes()).hexdigest())
    return "".join(f"{pin}{''.join(f' --hash=sha256:{each}' for each in found)}\n" for pin, found in hashes.items())


def write_index(folder: Path, files: Path) -> str:
    """Write an index of the packages in `files`, with their hashes, and return its address."""
    for file in files.iterdir():
        page = folder / file.name.split("-")[0] / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        with page.open("a", encoding="utf-8") as lines:
            lines.write(f'<a href="{file.as_uri()}#sha256={hashlib.sha256(file.read_bytes()).hexdigest()}">{file.name}</a>\n')
    return folder.as_uri()


def only_from(folder: Path, cache: Path) -> dict[str, str]:
    """Return variables by which uv takes packages from a folder, with an empty cache and without an index."""
    folder.mkdir(parents=True, exist_ok=True)
    return {"UV_FIND_LINKS": str(folder), "UV_NO_INDEX": "1", "UV_CACHE_DIR": str(cache)}
