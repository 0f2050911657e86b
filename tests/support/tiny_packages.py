"""Small wheels in a folder, and the variables by which uv finds these packages and no others."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_wheel(folder: Path, name: str, version: str, requires: str = "") -> Path:
    """Write a wheel with a module `name`, whose VERSION is the version, and a program of that name that prints it."""
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + (f"Requires-Dist: {requires}\n" if requires else "")
    files = {
        f"{name}.py": f"VERSION = {version!r}\ndef main():\n    print({name!r}, VERSION)\n",
        f"{about}/METADATA": metadata,
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{about}/RECORD", "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD")))
    return wheel


def only_from(folder: Path, cache: Path) -> dict[str, str]:
    """Return variables by which uv takes packages from a folder, with an empty cache and without an index."""
    folder.mkdir(parents=True, exist_ok=True)
    return {"UV_FIND_LINKS": str(folder), "UV_NO_INDEX": "1", "UV_CACHE_DIR": str(cache)}
