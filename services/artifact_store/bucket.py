"""The only module that uses S3: write, read, list and delete the objects of one bucket.

Rule 1: an object never changes after it was written. The module uses no metadata, tags, retention or conditional
writes, because S3 servers differ on them (one destroys the object). Keys contain only [a-z0-9/_-].
Rule 2: S3 calls block, so they run in threads of this module. Streams have their own pool, so that slow senders delay
no other request.
Rule 3: errors report the server's status and code, never its text, which may contain anything.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from itertools import islice
from typing import Any, TypeVar

import urllib3
from minio import Minio
from minio.credentials.credentials import Credentials
from minio.credentials.providers import Provider
from minio.error import MinioException, S3Error

from contracts.wire.keys import OWNER_OBJECT_KEY
from services.artifact_store.settings import ArtifactStoreSettings
from services.shared.artifacts.errors import ArtifactFailed, StorageUnavailable

T = TypeVar("T")

_MAX_THREADS = 16
_CONNECT_S, _READ_S = 2.0, 5.0
_STREAM_READ_S = 120.0
"""A server may only answer once a large object is safe on its disk."""
_URL_LIFETIME = timedelta(hours=1)
_BINARY_TYPE = "application/octet-stream"
_MISSING_CODES = frozenset({"NoSuchKey", "NoSuchObject", "NotFound"})
_ADVICE = {
    "RequestTimeTooSkewed": "set the clock of this machine or of the S3 server",
    "AuthorizationHeaderMalformed": "RUNWIRE_S3_REGION is another one than the bucket's",
    "PermanentRedirect": "RUNWIRE_S3_ENDPOINT or RUNWIRE_S3_REGION is another one than the bucket's",
    "InvalidAccessKeyId": "RUNWIRE_S3_ACCESS_KEY is unknown there",
    "SignatureDoesNotMatch": "RUNWIRE_S3_SECRET_KEY is wrong, or a proxy before the server changes `Host`",
    "ExpiredToken": "the key has expired",
    "AccessDenied": "the key needs GetObject, PutObject, DeleteObject and ListBucket for RUNWIRE_S3_BUCKET",
}
_ERROR_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,64})</Code>")
_MAX_ERROR_BYTES = 4096
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)$")
_SKIPPED_BYTES = 1 << 20


class BytesMissing(Exception):
    """The object does not exist in the bucket."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One object of the bucket. `modified_at`: Unix ms, by the S3 server's clock."""

    key: str
    size: int
    modified_at: int


class Refused(Exception):
    """The server answered with a status that is none of success. `code`: the one of S3 in its text, if any."""

    def __init__(self, method: str, status: int, code: str) -> None:
        self.method, self.status, self.code = method, status, code

    @property
    def is_missing(self) -> bool:
        """Whether there is no such object. A HEAD is answered without a text, and some servers write no XML.

        To a PUT that is no answer: a writer does not look for an object.
        """
        is_said = self.code in _MISSING_CODES or (self.status == HTTPStatus.NOT_FOUND and not self.code)
        return is_said and self.method != "PUT"


class Keys(Provider):
    """The keys of S3, read again from their files for each signature, since a rotation changes these."""

    def __init__(self, settings: ArtifactStoreSettings) -> None:
        self._settings = settings

    def retrieve(self) -> Credentials:
        """Return the keys."""
        try:
            return Credentials(*self._settings.keys())
        except ValueError as error:
            raise StorageUnavailable(str(error)) from None


class Bucket:
    """The S3 bucket. Every method raises StorageUnavailable where the server answers with an error, or not at all."""

    def __init__(self, settings: ArtifactStoreSettings) -> None:
        self._name = settings.s3_bucket
        self.used = asyncio.Event()
        # Its warnings contain URLs, and so signatures.
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        # Enough for a short failure or an idle connection that was closed. Callers retry for longer, and no server says
        # how long a thread of ours sleeps.
        retries = urllib3.Retry(
            2,
            connect=1,
            read=1,
            status=2,
            backoff_factor=0.1,
            status_forcelist=[500, 502, 503, 504],
            raise_on_status=False,
            respect_retry_after_header=False,
        )
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=_CONNECT_S, read=_READ_S), maxsize=_MAX_THREADS, retries=retries
        )
        address = settings.endpoint()
        self._client = Minio(
            endpoint=address.host,
            credentials=Keys(settings),
            secure=address.secure,
            region=address.region,  # given, so that signing needs no request
            http_client=self._pool,
        )
        self._threads = ThreadPoolExecutor(_MAX_THREADS, "s3")
        self._streams = ThreadPoolExecutor(settings.artifact_uploads, "s3-stream")

    async def ensure(self) -> None:
        """Create the bucket if it does not exist. A key that may use objects only is enough where it does."""

        def ensure() -> None:
            # The object that names the owner is looked at: a HEAD of the bucket is refused without a reason.
            try:
                self._open("GET", OWNER_OBJECT_KEY).drain_conn()
            except Refused as refused:
                is_bucket_missing = refused.code == "NoSuchBucket"
                if not refused.is_missing and not is_bucket_missing:
                    raise
                try:
                    if is_bucket_missing or not self._client.bucket_exists(self._name):
                        self._client.make_bucket(self._name)
                except MinioException:  # Where the bucket may not be asked for, a write shows whether it is there.
                    if is_bucket_missing:
                        raise

        await self._run(ensure)

    async def size(self, key: str) -> int | None:
        """Return the size of an object in bytes, or None if it does not exist."""
        try:
            return await self._run(lambda: self._size(key))
        except BytesMissing:
            return None

    def _size(self, key: str) -> int:
        head = self._open("HEAD", key)
        head.drain_conn()
        if (length := head.headers.get("content-length")) is not None:
            return int(length)
        try:
            response = self._open("GET", key, headers={"Range": "bytes=0-0"})
        except Refused as refused:
            if refused.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # It is empty.
                return 0
            raise
        with response:
            total = _RANGE.match(response.headers.get("content-range", ""))
            return int(total[2]) if total else sum(map(len, response.stream(_SKIPPED_BYTES)))

    async def write(self, key: str, body: bytes) -> None:
        """Write an object from memory. The pool may repeat the request, since it writes the same bytes."""
        await self._run(lambda: self._put(key, body, len(body), {}))

    async def write_stream(self, key: str, chunks: Iterable[bytes], size: int) -> None:
        """Write an object of `size` bytes from chunks, which are read in a thread.

        An error of the iterator ends the write.

        The object exists only once all bytes are stored. `put_object` is not used: it buffers parts in memory and
        hashes each a second time.
        """
        how = {"retries": False, "timeout": urllib3.Timeout(connect=_CONNECT_S, read=_STREAM_READ_S)}
        await self._run(lambda: self._put(key, chunks, size, how), self._streams)

    def _put(self, key: str, body: bytes | Iterable[bytes], size: int, how: dict[str, Any]) -> None:
        headers = {"Content-Length": str(size), "Content-Type": _BINARY_TYPE}
        response = self._open("PUT", key, headers=headers, body=body, **how)
        response.drain_conn()
        # A proxy that asks for a login answers 200, too.
        if not isinstance(body, bytes) or not response.headers.get("etag"):
            with suppress(Refused):
                if self._size(key) == size:
                    return
            raise StorageUnavailable("the S3 server accepted the bytes but does not hold them")

    async def read(self, key: str, offset: int, length: int, size: int) -> bytes:
        """Return exactly `length` bytes (at least one) from `offset` of an object of `size` bytes.

        Raises BytesMissing if the object does not exist.
        """
        return await self._run(lambda: self._get(key, offset, length, size))

    def _get(self, key: str, offset: int, length: int, size: int) -> bytes:
        wanted = {"Range": f"bytes={offset}-{offset + length - 1}", "Accept-Encoding": "identity"}
        with self._open("GET", key, headers=wanted) as response:
            at, expected = (0, size) if response.status == HTTPStatus.OK else (offset, length)
            is_other = False
            if sent := _RANGE.match(response.headers.get("content-range", "")):
                at, is_other = int(sent[1]), int(sent[2]) != size
            elif "content-encoding" not in response.headers:
                is_other = int(response.headers.get("content-length", expected)) != expected
            if at > offset or is_other:
                raise StorageUnavailable("the S3 server holds other bytes than were stored")
            while at < offset and (skipped := len(response.read(min(offset - at, _SKIPPED_BYTES)))):
                at += skipped  # The server ignored the range.
            data = response.read(length)
            if len(data) != length or (offset + length == size and response.read(1)):
                raise StorageUnavailable("the S3 server sent fewer or more bytes than were stored")
        return data

    async def remove(self, key: str) -> None:
        """Delete an object, in one request that is not repeated. A missing object is no error."""

        def delete() -> None:
            try:
                self._open("DELETE", key, retries=False).drain_conn()
            except Refused as refused:
                if not refused.is_missing:
                    raise

        await self._run(delete)

    async def listed(self, after: str | None, limit: int) -> list[Listed]:
        """Return the next objects in the order of their keys."""

        def found() -> Iterator[Listed]:
            last = after or ""
            for each in self._client.list_objects(self._name, recursive=True, start_after=after):
                if each.object_name and each.last_modified and not each.is_dir:
                    if each.object_name <= last:
                        raise StorageUnavailable("the S3 server lists the same objects again, or in no order")
                    last = each.object_name
                    yield Listed(each.object_name, each.size or 0, int(each.last_modified.timestamp() * 1000))

        return await self._run(lambda: list(islice(found(), limit)))

    def _open(self, method: str, key: str, **how: Any) -> urllib3.BaseHTTPResponse:
        """Send a request about an object and return the answer, unread. Raises Refused."""
        url = self._client.get_presigned_url(method, self._name, key, expires=_URL_LIFETIME)
        response = self._pool.urlopen(method, url, preload_content=False, **how)
        if response.status in {HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT, HTTPStatus.PARTIAL_CONTENT}:
            return response
        with response:
            code = _ERROR_CODE.search(response.read(_MAX_ERROR_BYTES))
        raise Refused(method, response.status, code[1].decode() if code else "")

    async def _run(self, call: Callable[[], T], threads: ThreadPoolExecutor | None = None) -> T:
        self.used.set()
        try:
            return await asyncio.get_running_loop().run_in_executor(threads or self._threads, call)
        except Refused as refused:
            if refused.is_missing:
                raise BytesMissing from None
            said = f"{refused.status} {refused.code}".rstrip()
            advice = f"; {_ADVICE[refused.code]}" if refused.code in _ADVICE else ""
            raise StorageUnavailable(f"the S3 server answered with the error {said}{advice}") from None
        except S3Error as error:
            raise StorageUnavailable(f"the S3 server answered with the error {error.code}") from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise StorageUnavailable(f"the S3 server cannot be reached ({type(error).__name__})") from None
        except ArtifactFailed:
            raise
        except Exception as error:
            if threads is not None:  # What the sender of a stream raises.
                raise
            # Dates, lengths and XML as libraries do not expect them.
            raise StorageUnavailable(f"the S3 server sent an invalid answer ({type(error).__name__})") from None

    def close(self) -> None:
        """Close threads and connections. Calls in progress finish."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._streams.shutdown(wait=False, cancel_futures=True)
        self._pool.clear()
