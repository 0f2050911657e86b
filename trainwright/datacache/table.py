"""The files of a table and their rows: an Iceberg table, or files of Parquet or CSV.

Imported only in the environment of the cache, which has pyarrow and pyiceberg.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pyarrow import fs

from trainwright.datacache.ranges import DataFile
from trainwright.datacache.settings import CacheError

_BATCH = 65536
"""Rows of a batch."""
_KINDS = (".parquet", ".csv")


class Table(Protocol):
    """A table whose files can be read one by one."""

    schema: pa.Schema
    files: list[DataFile]

    def read(self, path: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, in the schema of the table. Raises OSError, pyarrow's ArrowException."""
        ...


def open_table(location: str) -> Table:
    """Open the table at `location`: the metadata of an Iceberg table, or a file or folder of Parquet or CSV.

    Raises CacheError if there is none, or it cannot be cached.
    """
    try:
        return IcebergTable(location) if location.endswith(".json") else Files(location)
    except CacheError:
        raise
    except Exception as error:  # pyiceberg and pyarrow have many, and all say that this table is unreadable
        raise CacheError(f"METADATA_LOC={location}: the table cannot be read: {type(error).__name__}: {_line(error)}") from error


class IcebergTable:
    """The current snapshot of an Iceberg table."""

    def __init__(self, location: str):
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from pyiceberg.table import StaticTable

        self._table = StaticTable.from_metadata(location)
        self._tasks: dict[str, Any] = {}
        for task in self._table.scan().plan_files():
            if task.delete_files:
                raise CacheError(
                    f"METADATA_LOC={location}: {task.file.file_path} has rows that were deleted by delete files, which the cache "
                    "does not apply; rewrite the table's data files (compaction) first"
                )
            self._tasks[task.file.file_path] = task
        files = ((path, task.file) for path, task in self._tasks.items())
        self.files = [DataFile(path, file.record_count, file.file_size_in_bytes) for path, file in files]
        self.schema: pa.Schema = schema_to_pyarrow(self._table.schema(), include_field_ids=False)

    def read(self, path: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file; columns that were added or renamed since it was written are those of the table."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        scan = ArrowScan(self._table.metadata, self._table.io, self._table.schema(), AlwaysTrue())
        for batch in scan.to_record_batches([self._tasks[path]]):
            yield _conformed(batch, self.schema)


class Files:
    """A file, or all files below a folder, of Parquet or CSV. The first one has the schema of all."""

    def __init__(self, location: str):
        self._fs, path = fs.FileSystem.from_uri(location) if "://" in location else (fs.LocalFileSystem(), location)
        info = self._fs.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise CacheError(f"METADATA_LOC={location} does not exist, or is not visible to the pods of the cache")
        is_folder = info.type == fs.FileType.Directory
        below = self._fs.get_file_info(fs.FileSelector(path, recursive=True)) if is_folder else [info]
        names = sorted(each.path for each in below if each.type == fs.FileType.File and _is_data(each.path, path))
        kinds = {kind for kind in _KINDS for name in names if name.endswith(kind)}
        if len(kinds) != 1:
            found = "has both Parquet and CSV files" if kinds else "has neither Parquet nor CSV files"
            raise CacheError(f"METADATA_LOC={location} {found}; name an Iceberg table's metadata.json, or files of one kind")
        self._is_parquet = kinds == {".parquet"}
        self.schema = self._schema(names[0])
        self.files = [self._measured(name) for name in names]

    def read(self, path: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file. Raises CacheError if its columns are others than those of the first one."""
        try:
            for batch in self._batches(path):
                yield _conformed(batch, self.schema)
        except pa.ArrowInvalid as error:
            raise CacheError(f"{path}: its rows do not have the columns of the table: {_line(error)}") from error

    def _batches(self, path: str) -> Iterator[pa.RecordBatch]:
        if self._is_parquet:
            with self._fs.open_input_file(path) as file:
                yield from pa.parquet.ParquetFile(file).iter_batches(_BATCH, use_threads=False)
            return
        convert = pa.csv.ConvertOptions(column_types=self.schema)  # types of other files are not guessed
        with self._fs.open_input_stream(path) as stream, pa.csv.open_csv(stream, convert_options=convert) as reader:
            yield from reader

    def _schema(self, path: str) -> pa.Schema:
        if self._is_parquet:
            with self._fs.open_input_file(path) as file:
                return pa.parquet.read_schema(file).remove_metadata()
        with self._fs.open_input_stream(path) as stream, pa.csv.open_csv(stream) as reader:
            return reader.schema

    def _measured(self, path: str) -> DataFile:
        if not self._is_parquet:
            return DataFile(path, sum(batch.num_rows for batch in self.read(path)))
        with self._fs.open_input_file(path) as file:
            metadata = pa.parquet.ParquetFile(file).metadata
            groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
            return DataFile(path, metadata.num_rows, sum(group.total_byte_size for group in groups))


def _is_data(path: str, root: str) -> bool:
    """Whether a file has rows; names with a dot or an underscore are of the program that wrote them."""
    parts = path.removeprefix(root).split("/")
    return path.endswith(_KINDS) and not any(part.startswith((".", "_")) for part in parts)


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    if batch.schema.names != schema.names:
        raise pa.ArrowInvalid(f"columns {batch.schema.names}, not {schema.names}")
    return batch.cast(schema)


def _line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:400]
