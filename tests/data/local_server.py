"""An HTTP server on this machine that answers as it is told, to download from."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gramrun.data import download

CONTENT = bytes(range(256)) * 2000
SENT = 3 * download._CHUNK_BYTES  # before a connection breaks

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """A server on this machine that gives each request the next of its answers, and the last for ever.

    A path in `routes` has answers of its own. `most_open` is how many requests it has been answering at once.
    """

    def __init__(self) -> None:
        self.answers: list[Answer] = [not_found]
        self.routes: dict[str, list[Answer]] = {}
        self.most_open = 0
        self.requests: list[tuple[str, dict[str, str]]] = []
        server = self
        self._open = 0
        self._counting = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append((self.path, dict(self.headers)))
                server.count(1)
                answers = server.routes.get(self.path, server.answers)
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                answer(self)
                self.close_connection = True

            def nearly_answered(self) -> None:
                """With the last byte the other side may ask again, before this thread ends."""
                server.count(-1)

            def log_message(self, format: str, *args: object) -> None:
                """Keep the test output quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}/"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def count(self, change: int) -> None:
        with self._counting:
            self._open += change
            self.most_open = max(self.most_open, self._open)

    def ranges(self) -> list[str | None]:
        return [headers.get("Range") for _, headers in self.requests]

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


def send(
    request: BaseHTTPRequestHandler, status: int, body: bytes, declared: int | None = None, **headers: str
) -> None:
    request.send_response(status)
    request.send_header("Content-Length", str(len(body) if declared is None else declared))
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    if not body:
        request.nearly_answered()  # type: ignore[attr-defined]
    request.end_headers()
    if body:
        request.wfile.write(body[:-1])
        request.nearly_answered()  # type: ignore[attr-defined]
        request.wfile.write(body[-1:])
    request.wfile.flush()


def not_found(request: BaseHTTPRequestHandler) -> None:
    send(request, 404, b"<html>no</html>")


def busy(request: BaseHTTPRequestHandler) -> None:
    send(request, 503, b"", Retry_After="0")


def whole(content: bytes = CONTENT, tag: str = '"1"') -> Answer:
    return lambda request: send(request, 200, content, ETag=tag)


def truncated(content: bytes = CONTENT, sent: int = SENT, tag: str = '"1"') -> Answer:
    return lambda request: send(request, 200, content[:sent], len(content), ETag=tag)


def rest(content: bytes = CONTENT) -> Answer:
    """Answer a range request with what is asked for."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        start = int(request.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        send(request, 206, content[start:], Content_Range=f"bytes {start}-{len(content) - 1}/{len(content)}")

    return answer


def stalled(request: BaseHTTPRequestHandler) -> None:
    send(request, 200, CONTENT[:SENT], len(CONTENT), ETag='"1"')
    time.sleep(0.6)
