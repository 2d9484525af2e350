"""A chat server in miniature on loopback that misbehaves as told, for tests of the endpoint receiver."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

MODEL = "tiny-chat"
Body = dict[str, Any]


class Answer(msgspec.Struct, frozen=True):
    """What a request gets: `body` as JSON, or as it stands when it is bytes; `cut` sends less than it announces."""

    body: Any
    status: int = 200
    headers: dict[str, str] = {}
    seconds: float = 0.0
    cut: bool = False


class ChatServer(msgspec.Struct):
    """What a running server was asked.

    Attributes
    ----------
    url : the address of its routes
    asked : bodies of the chat and completion requests, in the order of their arrival
    keys : Authorization headers, of every request
    most : requests that were under way together, at most
    """

    url: str = ""
    asked: list[Body] = []
    keys: list[str] = []
    most: int = 0


def chat(text: str | None = "yes", *, finish: str | None = "stop", usage: Any = "told", **message: Any) -> Body:
    """Return a chat completion with one choice; `usage` None leaves the counts out."""
    body: Body = {
        "id": "1",
        "object": "chat.completion",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
        ],
    }
    if usage is not None:
        counts = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
        body["usage"] = counts if usage == "told" else usage
    return body


@contextmanager
def chat_server(
    answer: Callable[[int, Body], Answer],
    *,
    models: Any = None,
    owner: str = "somebody",
    routes: dict[str, Callable[[Body], Answer]] | None = None,
    prefix: str = "/v1",
) -> Iterator[ChatServer]:
    """Serve until the block ends; `answer` maps (place of the request, its body) to what it gets.

    Parameters
    ----------
    models : the body of /models; by default one model, `MODEL`, owned by `owner`
    routes : answers of other routes by path
    prefix : what the routes stand under
    """
    told = ChatServer(asked=[], keys=[])
    lock = threading.Lock()
    busy = [0]
    listed = (
        {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": owner}]} if models is None else models
    )

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent."""

        def do_GET(self) -> None:
            told.keys.append(self.headers.get("Authorization", ""))
            if self.path == f"{prefix}/models":
                self._send(listed if isinstance(listed, Answer) else Answer(listed))
            else:
                self._other({})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            if not self.path.endswith("/completions"):
                self._other(body)
                return
            with lock:
                place = len(told.asked)
                told.asked.append(body)
                told.keys.append(self.headers.get("Authorization", ""))
                busy[0] += 1
                told.most = max(told.most, busy[0])
            try:
                found = answer(place, body)
                time.sleep(found.seconds)
            finally:
                with lock:
                    busy[0] -= 1
            self._send(found)

        def _other(self, body: Body) -> None:
            route = (routes or {}).get(self.path)
            self._send(route(body) if route else Answer({"detail": "Not Found"}, 404))

        def _send(self, found: Answer) -> None:
            data = found.body if isinstance(found.body, bytes) else json.dumps(found.body).encode()
            try:
                self.send_response(found.status)
                for name, value in found.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data) + 50 * found.cut))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                pass  # a client that did not wait
            self.close_connection = found.cut

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    told.url = f"http://127.0.0.1:{server.server_address[1]}{prefix}"
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
