"""A small server of Google Cloud Storage's XML interface: generations, conditions, ranges, pages and multipart uploads."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "trainwright"
_PAGE = 5
"""Objects of a page, so that every test sees a second one."""


@dataclass
class GcsServer:
    """`objects` maps keys to contents and generations."""

    address: str = ""
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    generation: int = 1000

    def store(self, key: str, content: bytes) -> int:
        self.generation += 1
        self.objects[key] = (content, self.generation)
        return self.generation


@contextlib.contextmanager
def gcs_server() -> Iterator[GcsServer]:
    """Run the server until the block ends."""
    state = GcsServer()

    class Handler(_Handler):
        server_state = state

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        state.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield state
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: GcsServer

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if bucket != BUCKET:
            return self._answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")
        with self.server_state.lock:
            if "uploads" in query or "uploadId" in query:
                return self._multipart(key, query, body)
            if self.command in ("GET", "HEAD") and not key:
                return self._list(query)
            getattr(self, f"_{self.command.lower()}")(key, body)

    def _put(self, key: str, body: bytes) -> None:
        state, condition = self.server_state, self.headers.get("x-goog-if-generation-match")
        present = state.objects.get(key, (b"", 0))[1]
        if condition is not None and int(condition) != present:
            return self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        self._answer(200, b"", generation=state.store(key, body), etag=md5(body).hexdigest())

    def _get(self, key: str, _body: bytes) -> None:
        found = self.server_state.objects.get(key)
        if found is None:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        content, generation = found
        status, wanted = 200, re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        extra = {}
        if wanted:
            start, end = int(wanted[1]), min(int(wanted[2] or len(content) - 1), len(content) - 1)
            extra["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
            status = 206
            self._answer(status, content[start : end + 1], generation=generation, etag=md5(content).hexdigest(), **extra)
            return
        self._answer(status, content, generation=generation, etag=md5(content).hexdigest())

    _head = _get

    def _delete(self, key: str, _body: bytes) -> None:
        found = self.server_state.objects.pop(key, None)
        self._answer(204 if found else 404, b"" if found else b"<Error><Code>NoSuchKey</Code></Error>")

    def _list(self, query: dict[str, str]) -> None:
        after = query.get("continuation-token") or ""
        prefix, delimiter = query.get("prefix") or "", query.get("delimiter") or ""
        keys = sorted(key for key in self.server_state.objects if key.startswith(prefix) and key > after)
        page, more = keys[:_PAGE], keys[_PAGE:]
        folders: list[str] = []
        if delimiter:
            inner = [key for key in page if delimiter in key[len(prefix) :]]
            folders = sorted({prefix + key[len(prefix) :].partition(delimiter)[0] + delimiter for key in inner})
            page = [key for key in page if key not in inner]
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.server_state.objects[key][0])}</Size>"
            f"<LastModified>2026-11-23T05:00:00.000Z</LastModified><ETag>&quot;x&quot;</ETag></Contents>"
            for key in page
        )
        contents += "".join(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in folders)
        token = f"<NextContinuationToken>{escape(keys[_PAGE - 1])}</NextContinuationToken>" if more else ""
        self._answer(200, f"<ListBucketResult>{contents}{token}</ListBucketResult>".encode())

    def _multipart(self, key: str, query: dict[str, str], body: bytes) -> None:
        state = self.server_state
        if "uploads" in query:
            upload = f"upload-{len(state.uploads)}"
            state.uploads[upload] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            return self._answer(200, text.encode())
        upload = query["uploadId"]
        if self.command == "PUT":
            state.uploads[upload][int(query["partNumber"])] = body
            return self._answer(200, b"", etag=md5(body).hexdigest())
        parts = state.uploads.pop(upload, {})
        if self.command == "DELETE":
            return self._answer(204, b"")
        generation = state.store(key, b"".join(parts[number] for number in sorted(parts)))
        text = '<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>'
        self._answer(200, text.encode(), generation=generation)

    def _answer(self, status: int, body: bytes, *, generation: int = 0, etag: str = "", **headers: str) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if generation:
            self.send_header("x-goog-generation", str(generation))
        self.send_header("ETag", f'"{etag}"')
        self.send_header("Last-Modified", "Mon, 23 Nov 2026 05:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def __getattr__(self, name: str) -> object:
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        pass
