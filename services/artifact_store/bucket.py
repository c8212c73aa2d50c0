"""The one module that talks S3: write, read, look at, remove and list the objects of one bucket, and sign URLs for them.

Rule 1: an object is never changed once it is there, and everything about it is kept elsewhere; no metadata, tags, retention or
conditional writes, since servers differ on them (one destroys the object). Keys are of [a-z0-9/_-].
Rule 2: calls block, so they run in threads of this module: streams in a pool of their own, so that slow senders hold up nobody else.
Rule 3: what the server says is told in a status and a code, never in its words: they can hold anything.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import quote

import urllib3
from minio import Minio
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError

from services.shared.artifacts.errors import StorageUnavailable

from .errors import BytesMissing
from .settings import ArtifactStoreSettings

T = TypeVar("T")

_MAX_THREADS = 16
_CONNECT_S, _READ_S = 2.0, 5.0
_STREAM_READ_S = 120.0
"""A server may only answer once a large object is safe on its disk."""
_UPLOAD_URL_LIFETIME = timedelta(hours=1)
_INLINE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"})
_URL_REUSE_S, _MAX_CACHED_URLS = 30.0, 1000
_BINARY_TYPE = "application/octet-stream"
_MISSING_CODES = frozenset({"NoSuchKey", "NoSuchObject", "NotFound"})
_EXISTS_CODES = frozenset({"BucketAlreadyOwnedByYou", "BucketAlreadyExists"})


class S3Pool(urllib3.PoolManager):
    """`rclone serve s3` calls its error bodies text/xml, which minio-py does not read: every error would lose its code."""

    def urlopen(self, method: str, url: str, redirect: bool = True, **kw: Any) -> urllib3.BaseHTTPResponse:  # type: ignore[override]  # noqa: FBT001, FBT002, the parent's own signature
        """Send one request and give the type of an error body the name that minio-py knows."""
        response = super().urlopen(method, url, redirect=redirect, **kw)
        if response.status >= HTTPStatus.MULTIPLE_CHOICES and response.headers.get("content-type", "").startswith("text/xml"):
            response.headers["content-type"] = "application/xml"
        return response


@dataclass(frozen=True, slots=True)
class Listed:
    """One object of the bucket. `modified_at` in Unix ms, by the server's clock."""

    key: str
    size: int
    modified_at: int


class Bucket:
    """The S3 bucket. Everything raises StorageUnavailable when the server does not answer, or answers with an error."""

    def __init__(self, settings: ArtifactStoreSettings) -> None:
        self._name = settings.s3_bucket
        # Its warnings show whole URLs, and with them signatures.
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        # Enough for a server that hiccups or has closed an idle connection; callers wait longer, and ask again.
        retries = urllib3.Retry(
            2, connect=1, read=1, status=2, backoff_factor=0.1, status_forcelist=[500, 502, 503, 504], raise_on_status=False
        )
        self._pool = S3Pool(timeout=urllib3.Timeout(connect=_CONNECT_S, read=_READ_S), maxsize=_MAX_THREADS, retries=retries)
        self._client = _client(settings, self._pool, public=False)
        self._public = _client(settings, self._pool, public=True)
        self._threads = ThreadPoolExecutor(_MAX_THREADS, "s3")
        self._streams = ThreadPoolExecutor(settings.artifact_uploads, "s3-stream")
        self._inner: dict[tuple[str, int], tuple[str, float]] = {}

    async def ensure(self) -> None:
        """Make the bucket if it is not there."""
        await self._run(self._ensure)

    def _ensure(self) -> None:
        if not self._client.bucket_exists(self._name):
            try:
                self._client.make_bucket(self._name)
            except S3Error as error:
                if error.code not in _EXISTS_CODES:
                    raise

    async def size(self, key: str) -> int | None:
        """Return the bytes of an object, or None where there is none."""
        try:
            return await self._run(lambda: self._client.stat_object(self._name, key).size)
        except BytesMissing:
            return None

    async def write(self, key: str, body: bytes) -> None:
        """Write an object from memory. A repetition writes the same bytes, so the pool may repeat it."""
        await self._run(lambda: self._put(key, body, len(body), retries=None, read_s=_READ_S))

    async def write_stream(self, key: str, chunks: Iterable[bytes], size: int) -> None:
        """Write an object of `size` bytes while its chunks come in; they are asked for in a thread. What they raise ends the call.

        The object is only there once all bytes are. Not by `put_object`, which gathers parts in memory and hashes each a second time.
        """
        await self._run(lambda: self._put(key, chunks, size, retries=False, read_s=_STREAM_READ_S), self._streams)

    def _put(self, key: str, body: bytes | Iterable[bytes], size: int, *, retries: bool | None, read_s: float) -> None:
        url = self._client.get_presigned_url("PUT", self._name, key, expires=_UPLOAD_URL_LIFETIME)
        response = self._pool.urlopen(
            "PUT",
            url,
            body=body,
            headers={"Content-Length": str(size), "Content-Type": _BINARY_TYPE},
            timeout=urllib3.Timeout(connect=_CONNECT_S, read=read_s),
            **({} if retries is None else {"retries": retries}),
        )
        if response.status != HTTPStatus.OK:
            raise ServerError("put", response.status)

    async def read(self, key: str, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes (at least one) from `offset` on. Raises BytesMissing where there is no such object."""
        return await self._run(lambda: self._get(key, offset, length))

    def _get(self, key: str, offset: int, length: int) -> bytes:
        response = self._client.get_object(self._name, key, offset=offset, length=length)
        try:
            if int(response.headers.get("content-length", length)) > length:  # The server ignored the range.
                _skip(response, offset)
            data = response.read(length)
        finally:
            response.close()
            response.release_conn()
        if len(data) != length:
            raise StorageUnavailable("the S3 server sent fewer bytes than it said")
        return data

    async def remove(self, key: str) -> None:
        """Remove an object, in one request that is not repeated; one that is not there is fine."""
        await self._run(lambda: self._delete(key))

    def _delete(self, key: str) -> None:
        url = self._client.get_presigned_url("DELETE", self._name, key, expires=_UPLOAD_URL_LIFETIME)
        response = self._pool.urlopen("DELETE", url, retries=False)
        if response.status not in {HTTPStatus.OK, HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND}:
            raise ServerError("delete", response.status)

    async def listed(self, after: str | None, limit: int) -> list[Listed]:
        """Return the next objects in the order of their keys."""
        return await self._run(lambda: list(islice(self._list(after), limit)))

    def _list(self, after: str | None) -> Iterator[Listed]:
        for found in self._client.list_objects(self._name, recursive=True, start_after=after):
            if found.object_name and found.last_modified and not found.is_dir:
                yield Listed(found.object_name, found.size or 0, int(found.last_modified.timestamp() * 1000))

    def signed_url(self, key: str, seconds: int, mime_type: str, filename: str | None) -> str:
        """Return a URL that gives out an object for so many seconds, under a type that no browser runs."""
        shown = mime_type.partition(";")[0]
        name = f"; filename*=UTF-8''{quote(filename, safe='')}" if filename else ""
        headers = {
            "response-content-type": shown if shown in _INLINE_TYPES else _BINARY_TYPE,
            "response-content-disposition": f"{'inline' if shown in _INLINE_TYPES else 'attachment'}{name}",
        }
        return self._public.presigned_get_object(self._name, key, expires=timedelta(seconds=seconds), response_headers=dict(headers))

    def inner_url(self, key: str, seconds: int) -> tuple[str, int]:
        """Return a URL that gives out an object as it is, for services that reach the server as this one does; and for how many seconds.

        Signing costs more than a look at NATS, so the URL of an object that is asked for again is a little older than the question.
        """
        now = time.monotonic()
        url, signed_at = self._inner.get((key, seconds), ("", -_URL_REUSE_S))
        if now - signed_at >= _URL_REUSE_S:
            url = self._client.get_presigned_url("GET", self._name, key, expires=timedelta(seconds=seconds))
            while len(self._inner) >= _MAX_CACHED_URLS:
                del self._inner[next(iter(self._inner))]
            self._inner.pop((key, seconds), None)
            self._inner[key, seconds] = url, now
            signed_at = now
        return url, seconds - math.ceil(now - signed_at)

    async def _run(self, call: Callable[[], T], threads: ThreadPoolExecutor | None = None) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(threads or self._threads, call)
        except S3Error as error:
            if error.code in _MISSING_CODES:
                raise BytesMissing from None
            raise StorageUnavailable(f"the S3 server said {error.code}") from None
        except ServerError as error:
            raise StorageUnavailable(f"the S3 server answered with status {error.status_code}") from None
        except InvalidResponseError:
            raise StorageUnavailable("the S3 server sent what is no S3 answer") from None
        except (MinioException, urllib3.exceptions.HTTPError, OSError) as error:
            raise StorageUnavailable(f"the S3 server is not there ({type(error).__name__})") from None

    def close(self) -> None:
        """Let go of threads and connections; what is running comes to its end."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._streams.shutdown(wait=False, cancel_futures=True)
        self._pool.clear()


def _client(settings: ArtifactStoreSettings, pool: S3Pool, *, public: bool) -> Minio:
    endpoint, secure = settings.endpoint(public=public)
    return Minio(
        endpoint=endpoint,
        access_key=settings.s3_access_key.get_secret_value(),
        secret_key=settings.s3_secret_key.get_secret_value(),
        secure=secure,
        region=settings.s3_region,  # given, so that signing asks nobody
        http_client=pool,
    )


def _skip(response: urllib3.BaseHTTPResponse, offset: int) -> None:
    left = offset
    while left > 0 and (skipped := len(response.read(min(left, 1 << 20)))):
        left -= skipped
