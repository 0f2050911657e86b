"""Rows come out of every format the same; what is no row is named by file and line."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.rows import read_rows

ROWS = [{"prompt": "a\u2028b", "completion": "ü"}, {"prompt": "c", "completion": 'd\n,"e'}]
BOM = b"\xef\xbb\xbf"


def parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()


CSV = 'prompt,completion\r\n"a\u2028b",ü\r\nc,"d\n,""e"\r\n'.encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", lines(ROWS)),
        ("rows.jsonl", lines(ROWS).replace(b"\n{", b"\r{")),
        ("rows.jsonl.gz", gzip.compress(BOM + lines(ROWS), mtime=0)),
        ("ROWS.JSONL.GZ", gzip.compress(lines(ROWS[:1]) + b"\n", mtime=0) + gzip.compress(lines(ROWS[1:]), mtime=0)),
        ("rows.jsonl", BOM + lines(ROWS) + b"\n\n"),
        ("ROWS.JSONL", lines(ROWS).replace(b"\n{", b"\r\n{")),
        ("rows.json", json.dumps(ROWS).encode()),
        ("rows.json", BOM + json.dumps(ROWS, indent=2).encode()),
        ("rows.json", json.dumps({"data": ROWS, "version": 1}).encode()),
        ("rows.json", b'{"data": [\n' + b",\n".join(json.dumps(row).encode() for row in ROWS) + b"]}"),
        ("rows.json", lines(ROWS)),
        ("rows.json", BOM + lines(ROWS) + b"\n"),
        ("rows.csv", CSV),
        ("rows.csv", BOM + CSV),
        ("rows.csv", CSV.replace(b"completion\r\n", b"completion\r").replace(b"\r\nc", b"\rc")),
        ("rows.csv", CSV.replace(b",", b";").replace(b"d\n;", b"d\n,")),
        ("rows.csv", CSV.replace(b",", b"\t").replace(b"d\n\t", b"d\n,")),
        ("rows.tsv", CSV.replace(b",", b"\t").replace(b"d\n\t", b"d\n,")),
        ("rows.tsv.gz", gzip.compress(CSV.replace(b",", b"\t").replace(b"d\n\t", b"d\n,"), mtime=0)),
        ("rows.csv.gz", gzip.compress(BOM + CSV, mtime=0)),
        ("rows.json.gz", gzip.compress(BOM + lines(ROWS) + b"\n", mtime=0)),
        ("rows.json.gz", gzip.compress(json.dumps(ROWS).encode(), mtime=0)),
        ("rows.json.gz", gzip.compress(json.dumps({"data": ROWS}).encode(), mtime=0)),
        ("rows.json.gz", gzip.compress(json.dumps({"data": ROWS}, indent=1).encode(), mtime=0)),
    ],
)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert list(read_rows(tmp_path / name)) == ROWS


def test_parquet_gives_the_same_rows(tmp_path: Path) -> None:
    parquet(tmp_path / "rows.parquet", ROWS)
    assert list(read_rows(tmp_path / "rows.parquet")) == ROWS


@pytest.mark.parametrize("writer", ["new_stream", "new_file"])
def test_arrow_gives_the_same_rows(tmp_path: Path, writer: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_pylist(ROWS)
    with getattr(pytest.importorskip("pyarrow.ipc"), writer)(tmp_path / "rows.arrow", table.schema) as file:
        file.write_table(table)
    assert list(read_rows(tmp_path / "rows.arrow")) == ROWS


def test_json_lines_of_one_row_under_another_name_are_a_row(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_bytes(lines(ROWS[:1]))
    assert list(read_rows(tmp_path / "rows.json")) == ROWS[:1]


def test_a_csv_field_may_be_longer_than_the_csv_module_likes(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text\n" + "x" * 200_000 + "\n")
    assert [len(row["text"]) for row in read_rows(tmp_path / "rows.csv")] == [200_000]


@pytest.mark.parametrize(
    ("name", "content"),
    [("rows.jsonl", b""), ("rows.jsonl", BOM), ("rows.json", b"[]"), ("rows.csv", b""), ("rows.csv", b"a,b\n")],
)
def test_a_file_without_rows_has_none(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert list(read_rows(tmp_path / name)) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.jsonl", b'{"text": "a"}\n\n["b"]\n', "rows.jsonl:3: the row is a list, not an object"),
        ("rows.jsonl", b'{"text": "a"}\n{"text": ', "rows.jsonl:2: not JSON: "),
        ("rows.jsonl", b"[" * 100_000, "rows.jsonl:1: not JSON: "),
        ("rows.jsonl", b'{"text": "a"}\n{"text": "\xff"}', "rows.jsonl:2: not UTF-8: invalid start byte at byte 10 of the line"),
        ("rows.json", b'[{"text": "a"}, 1]', "rows.json:2: the row is a int, not an object"),
        ("rows.json", b'"text"', "rows.json: expected a list of rows"),
        ("rows.json", b"", "rows.json:1: not JSON: "),
        ("rows.json", b'[{"text": "a"},', "rows.json:1: not JSON: "),
        ("rows.json", b'{"text": "a"}\n{"text": ', "rows.json:2: not JSON: "),
        ("rows.csv", b"a,b\n1,2\n1,2,3\n", "rows.csv:3: the row has more or fewer fields than the header"),
        ("rows.csv", b"a,b\n1\n", "rows.csv:2: the row has more or fewer fields than the header"),
        ("rows.csv", b"a\n\xff\n", "rows.csv: not UTF-8: "),
        ("rows.jsonl.gz", b"{}", "rows.jsonl.gz: invalid or incomplete gzip: Not a gzipped file"),
        ("rows.jsonl.gz", gzip.compress(b'{"text": "a"}\n', mtime=0)[:-5], "rows.jsonl.gz: invalid or incomplete gzip: "),
        ("rows.jsonl.gz", gzip.compress(b"{}\n1", mtime=0), "rows.jsonl.gz:2: the row is a int, not an object"),
        ("rows.jsonl.gz", gzip.compress(b"\xff", mtime=0), "rows.jsonl.gz:1: not UTF-8: "),
        ("rows.csv.gz", b"a", "rows.csv.gz: invalid or incomplete gzip: "),
        ("rows.json.gz", gzip.compress(b'{"a": 1}\n{"a"', mtime=0), "rows.json.gz:2: not JSON: "),
        ("rows.txt.gz", b"", "rows.txt.gz: cannot read .gz; expected .jsonl, .json, .csv, .tsv, .parquet, .arrow, .jsonl.gz"),
        ("rows.arrow", b"ARROW1", "rows.arrow: invalid or incomplete Arrow: "),
        ("rows.arrow", b"no arrow at all", "rows.arrow: invalid or incomplete Arrow: "),
        ("rows.parquet", b"PAR1 no PAR1", "rows.parquet: invalid or incomplete Parquet: "),
        ("rows.parquet", b"", "rows.parquet: invalid or incomplete Parquet: "),
        ("rows.txt", b"", "rows.txt: cannot read .txt; expected .jsonl, .json, .csv, .tsv, .parquet"),
        ("rows", b"", "rows: cannot read files without a suffix"),
        ("rows", b"text,label\na,b\n", "rows: cannot read files without a suffix"),
        ("rows", b'{"text": "a"}\n{"text": ', "rows:2: not JSON: "),
    ],
)
def test_bad_rows_are_named_by_file_and_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InitializerError) as caught:
        list(read_rows(tmp_path / name))
    assert str(caught.value).startswith(message)


def test_file_without_a_suffix_is_read_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    for content in (b'\n{"text": "a"}\n', b'{"text": "a"}\n', b'[{"text": "a"}]', b'{\n"data": [{"text": "a"}]}'):
        file.write_bytes(content)
        assert list(read_rows(file)) == [{"text": "a"}]
    parquet(file, ROWS)
    assert list(read_rows(file)) == ROWS


def test_a_parquet_file_that_is_cut_off_is_said(tmp_path: Path) -> None:
    parquet(tmp_path / "rows.parquet", ROWS)
    content = (tmp_path / "rows.parquet").read_bytes()
    for length in (4, len(content) // 2, len(content) - 1):
        (tmp_path / "rows.parquet").write_bytes(content[:length])
        with pytest.raises(InitializerError, match="invalid or incomplete Parquet"):
            list(read_rows(tmp_path / "rows.parquet"))


def test_a_compressed_line_has_a_limit(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(b"{}\n" + b" " * 2**21))
    with pytest.raises(InitializerError, match=r"rows.jsonl.gz:2: the line is longer than 1 MiB"):
        list(read_rows(tmp_path / "rows.jsonl.gz", max_line=2**20))


@pytest.mark.parametrize("name", ["train.jsonl", "train.json", "train.csv", "train.parquet", "train.arrow", "train.jsonl.gz"])
def test_pointer_in_the_place_of_a_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0f\nsize 139\n")
    with pytest.raises(InitializerError, match=f"{name} is a pointer of git LFS, and not the file itself: run `git lfs pull`"):
        list(read_rows(tmp_path / name))
