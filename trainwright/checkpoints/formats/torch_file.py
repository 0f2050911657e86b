"""Checks that a file of `torch.save` is complete. It is a zip file, whose directory is at the end. Unpickles nothing.

`zipfile.is_zipfile` alone is too lenient: it also accepts a file that is cut off inside a tensor that contains another zip file.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

from trainwright.storage.plain_files import open_plain

_FIRST, _DIRECTORY, _END, _END64, _LOCATOR = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_MAX_DIRECTORY_BYTES = 256 * 1024 * 1024
"""A million tensors."""
_END_SIZE, _LOCATOR_SIZE, _END64_SIZE = 22, 20, 56


def torch_file_error(path: Path, within: Path) -> str | None:
    """Return why a file of `torch.save` is incomplete, naming it relative to `within`, or None. Raises UnsafeFile, OSError."""
    name = path.relative_to(within).as_posix()
    try:
        with open_plain(path, within) as file:
            return None if zip_directory_bytes(file) is not None else f"{name} is truncated or not a zip file of torch.save"
    except FileNotFoundError:
        return f"{name} is missing"
    except IsADirectoryError:
        return f"{name} is a folder, not a file"


def is_zip(path: Path, within: Path) -> bool:
    """Whether a file begins like a zip file. Older ones of `torch.save` do not. Raises UnsafeFile, OSError."""
    with open_plain(path, within) as file:
        return file.read(len(_FIRST)) == _FIRST


def zip_directory_bytes(file: BinaryIO) -> int | None:
    """Return the size of a zip file's directory; None unless a header is at the start and the directory ends where it should.

    Leaves the file at an arbitrary position. Reads a few bytes only.
    """
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    if size < _END_SIZE or file.read(len(_FIRST)) != _FIRST:
        return None
    file.seek(size - _END_SIZE)
    signature, _, _, _, _, directory_size, directory, comment = struct.unpack("<4s4H2LH", file.read(_END_SIZE))
    if signature != _END or comment:
        return None
    end = size - _END_SIZE
    if end >= _LOCATOR_SIZE + _END64_SIZE:
        file.seek(end - _LOCATOR_SIZE)
        signature, _, end64, _ = struct.unpack("<4sLQL", file.read(_LOCATOR_SIZE))
        if signature == _LOCATOR:
            if end64 != end - _LOCATOR_SIZE - _END64_SIZE:
                return None
            file.seek(end64)
            signature, *_, directory_size, directory = struct.unpack("<4sQ2H2L4Q", file.read(_END64_SIZE))
            if signature != _END64:
                return None
            end = end64
    if not 0 < directory_size <= _MAX_DIRECTORY_BYTES or directory + directory_size != end:
        return None
    file.seek(directory)
    return directory_size if file.read(len(_DIRECTORY)) == _DIRECTORY else None
