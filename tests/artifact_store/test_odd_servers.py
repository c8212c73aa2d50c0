"""Servers and proxies that answer otherwise than S3 says: bytes are what was stored, or the storage is unavailable."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import SecretStr

from services.artifact_store.bucket import Bucket
from services.artifact_store.settings import ArtifactStoreSettings
from services.shared.artifacts.errors import StorageUnavailable

BODY = b"0123456789"
LOGIN = b"<!doctype html><html><body>Please log in</body></html>"
KEY = "acme/00/0000"


@dataclass
class Answer:
    """What the server says to one method. `length`: False leaves the header out, and the end of the body closes."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: bool = True


Answers = dict[str, Answer]


@pytest.fixture
def odd() -> Iterator[tuple[Answers, Bucket]]:
    """A server that says what the test puts in, and the bucket on it."""
    answers: Answers = {}

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.rfile.read(int(request.headers.get("content-length") or 0))
        said = answers[request.command]
        request.send_response_only(said.status)
        for name, value in said.headers.items():
            request.send_header(name, value)
        if said.length:
            request.send_header("Content-Length", str(len(said.body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(said.body)

    methods = dict.fromkeys(("do_GET", "do_HEAD", "do_PUT", "do_DELETE"), answer)
    handler = type("Handler", (BaseHTTPRequestHandler,), methods)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    secret = SecretStr("secret-key")
    address = f"http://127.0.0.1:{server.server_port}"
    bucket = Bucket(ArtifactStoreSettings(s3_endpoint=address, s3_access_key=secret, s3_secret_key=secret))
    yield answers, bucket
    bucket.close()
    server.shutdown()
    server.server_close()


def error(status: int, code: str, **headers: str) -> Answer:
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml", **headers})


def listing(*rows: str, token: str = "<NextContinuationToken>a</NextContinuationToken>") -> Answer:
    """A listing with these objects and no end."""
    text = f"<Name>runwire</Name><IsTruncated>true</IsTruncated>{token}"
    for key, at in map(str.split, rows):
        text += f"<Contents><Key>{key}</Key><LastModified>{at}</LastModified></Contents>"
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    return Answer(200, f'<ListBucketResult xmlns="{space}">{text}</ListBucketResult>'.encode())


Call = tuple[str, tuple[Any, ...]]
"""A method of the bucket, and what it is given."""
READ: Call = ("read", (KEY, 2, 3, 10))
REST: Call = ("read", (KEY, 2, 8, 10))
WRITE: Call = ("write", (KEY, BODY))
SIZE: Call = ("size", (KEY,))
LIST: Call = ("listed", (None, 5))
ENSURE: Call = ("ensure", ())
AT = "2026-11-26T10:00:00.000Z"
CASES: dict[str, tuple[Call, Answers, Any]] = {
    "a range": (READ, {"GET": Answer(206, b"234", {"Content-Range": "bytes 2-4/10"})}, b"234"),
    "a range without its header": (READ, {"GET": Answer(206, b"234")}, b"234"),
    "a range without its header, of another length": (READ, {"GET": Answer(206, BODY)}, "other bytes"),
    "the range is ignored": (READ, {"GET": Answer(200, BODY)}, b"234"),
    "the range is ignored, no length": (READ, {"GET": Answer(200, BODY, length=False)}, b"234"),
    "another range": (READ, {"GET": Answer(206, b"345", {"Content-Range": "bytes 3-5/10"})}, "other bytes"),
    "another object": (READ, {"GET": Answer(206, b"234", {"Content-Range": "bytes 2-4/11"})}, "other bytes"),
    "a login page": (READ, {"GET": Answer(200, LOGIN, {"Content-Type": "text/html"})}, "other bytes"),
    "a longer page, no length": (REST, {"GET": Answer(200, LOGIN, length=False)}, "fewer or more bytes"),
    "the connection breaks": (READ, {"GET": Answer(206, b"23", {"Content-Range": "bytes 2-4/10"})}, "fewer or more"),
    "a wait of ten minutes": (READ, {"GET": error(503, "SlowDown", **{"Retry-After": "600"})}, "503 SlowDown"),
    "maintenance": (READ, {"GET": Answer(503, LOGIN, {"Retry-After": "600"})}, "error 503"),
    "an error cut short": (READ, {"GET": Answer(403, b"<Error><Co")}, "error 403"),
    "a put that a login page answers": (WRITE, {"PUT": Answer(200, LOGIN), "HEAD": Answer(404)}, "does not hold them"),
    "a put that is told of no object": (WRITE, {"PUT": error(403, "NoSuchKey")}, "error 403 NoSuchKey"),
    "a put that finds no such page": (WRITE, {"PUT": Answer(404, LOGIN)}, "error 404"),
    "a put without ETag": (WRITE, {"PUT": Answer(200), "HEAD": Answer(200, BODY)}, None),
    "a put with ETag": (WRITE, {"PUT": Answer(200, headers={"ETag": '"0"'})}, None),
    "a size without a length": (
        SIZE,
        {"HEAD": Answer(200, length=False), "GET": Answer(206, b"0", {"Content-Range": "bytes 0-0/10"})},
        10,
    ),
    "an odd date": (SIZE, {"HEAD": Answer(200, BODY, {"Last-Modified": "Thu, 26 Nov 2026 10:00:00 UTC"})}, 10),
    "an odd length": (SIZE, {"HEAD": Answer(200, headers={"Content-Length": "many"}, length=False)}, "invalid answer"),
    "no such object, in JSON": (SIZE, {"HEAD": Answer(404)}, None),
    "a listing": (("listed", (None, 1)), {"GET": listing(f"a {AT}")}, "one"),
    "a listing with an odd date": (LIST, {"GET": listing("a yesterday")}, "invalid answer"),
    "a listing without an end": (LIST, {"GET": listing(f"a {AT}", f"b {AT}")}, "the same objects again"),
    "a listing that goes on nowhere": (LIST, {"GET": listing(f"a {AT}", f"b {AT}", token="")}, "the same objects"),
    "another signature": (ENSURE, {"GET": error(403, "SignatureDoesNotMatch")}, "RUNWIRE_S3_SECRET_KEY .* a proxy"),
    "a listing cut short": (LIST, {"GET": Answer(200, b"<ListBucketResult><Na")}, "invalid answer"),
    "the clock is wrong": (ENSURE, {"GET": error(403, "RequestTimeTooSkewed")}, "RequestTimeTooSkewed; set the clock"),
    "another region": (ENSURE, {"GET": error(400, "AuthorizationHeaderMalformed")}, "RUNWIRE_S3_REGION"),
    "an unknown key": (ENSURE, {"GET": error(403, "InvalidAccessKeyId")}, "InvalidAccessKeyId; RUNWIRE_S3_ACCESS_KEY"),
    "a key for objects alone": (ENSURE, {"GET": error(404, "NoSuchKey"), "HEAD": Answer(403)}, None),
    "a bucket that is not made": (
        ENSURE,
        {"GET": error(404, "NoSuchBucket"), "PUT": error(403, "AccessDenied")},
        "AccessDenied",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_an_odd_answer(odd: tuple[Answers, Bucket], case: str) -> None:
    """A text is what the failure says; anything else is the result."""
    answers, bucket = odd
    (method, given), said, expected = CASES[case]
    answers.update(said)
    async with asyncio.timeout(30):  # No server decides how long a thread waits.
        if isinstance(expected, str) and expected != "one":
            with pytest.raises(StorageUnavailable, match=expected):
                await getattr(bucket, method)(*given)
        else:
            found = await getattr(bucket, method)(*given)
            assert found == expected or [each.key for each in found] == ["a"]
