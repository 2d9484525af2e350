"""A model hub in miniature on loopback, for tests of the real hub client: repositories are folders, one commit each."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Hub(BaseHTTPRequestHandler):
    repositories: dict[str, tuple[str, Path]] = {}  # "models/owner/name" -> (commit, folder)
    asked: list[str] = []

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = self.path.split("?")[0].strip("/")
        self.asked.append(path)
        for key, (commit, folder) in self.repositories.items():
            web = key.removeprefix("models/")  # models have no prefix in web addresses, data sets have one
            prefix = f"{web}/resolve/{commit}/"
            if path.startswith(prefix) and (file := folder / path.removeprefix(prefix)).is_file():
                data = file.read_bytes()
                self._send(body, data, {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": commit})
                return
            names = [str(file.relative_to(folder)) for file in sorted(folder.rglob("*")) if file.is_file()]
            if path == f"api/{key}/revision/{commit}":
                facts = {"id": web, "sha": commit, "siblings": [{"rfilename": name} for name in names]}
                self._send(body, json.dumps(facts).encode(), {"Content-Type": "application/json"})
                return
            if path == f"api/{key}/tree/{commit}":
                rows = [
                    {"type": "file", "path": name, "size": (folder / name).stat().st_size, "oid": name}
                    for name in names
                ]
                self._send(body, json.dumps(rows).encode(), {"Content-Type": "application/json"})
                return
        missing = b'{"error": "Entry not found"}'
        self._send(body, missing, {"X-Error-Code": "EntryNotFound"}, status=200 if path == "" else 404)

    def _send(self, body: bool, data: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)


@contextmanager
def hub(repositories: dict[str, tuple[str, Path]]) -> Iterator[tuple[str, list[str]]]:
    """Serve `repositories`; yields the endpoint's address and the list of paths asked for so far."""
    handler = type("Hub", (_Hub,), {"repositories": repositories, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", handler.asked  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
