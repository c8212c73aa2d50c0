"""The only module that uses S3: write, read, list and delete the objects of one bucket.

Rule 1: an object never changes after it was written. The module uses no metadata, tags, retention or conditional
writes, because S3 servers differ on them (one destroys the object). Keys contain only [a-z0-9/_-].
Rule 2: S3 calls block, so they run in threads of this module. Streams have their own pool, so that slow senders delay
no other request.
Rule 3: errors report the server's status and code, never its text, which may contain anything.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from itertools import islice
from typing import Any, TypeVar

import urllib3
from minio import Minio
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError

from services.artifact_store.errors import BytesMissing
from services.artifact_store.settings import ArtifactStoreSettings
from services.shared.artifacts.errors import StorageUnavailable

T = TypeVar("T")

_MAX_THREADS = 16
_CONNECT_S, _READ_S = 2.0, 5.0
_STREAM_READ_S = 120.0
"""A server may only answer once a large object is safe on its disk."""
_UPLOAD_URL_LIFETIME = timedelta(hours=1)
_BINARY_TYPE = "application/octet-stream"
_MISSING_CODES = frozenset({"NoSuchKey", "NoSuchObject", "NotFound"})
_EXISTS_CODES = frozenset({"BucketAlreadyOwnedByYou", "BucketAlreadyExists"})


class S3Pool(urllib3.PoolManager):
    """A connection pool that lets minio-py read errors of `rclone serve s3`, which labels them text/xml."""

    # The signature is the parent's.
    def urlopen(  # type: ignore[override]
        self,
        method: str,
        url: str,
        redirect: bool = True,  # noqa: FBT001, FBT002
        **kw: Any,
    ) -> urllib3.BaseHTTPResponse:
        """Send one request, and relabel an error body of type text/xml as application/xml."""
        response = super().urlopen(method, url, redirect=redirect, **kw)
        if response.status >= HTTPStatus.MULTIPLE_CHOICES and response.headers.get("content-type", "").startswith(
            "text/xml"
        ):
            response.headers["content-type"] = "application/xml"
        return response


@dataclass(frozen=True, slots=True)
class Listed:
    """One object of the bucket. `modified_at`: Unix ms, by the S3 server's clock."""

    key: str
    size: int
    modified_at: int


class Bucket:
    """The S3 bucket.

    Every method raises StorageUnavailable when the server does not answer, or answers with an error.
    """

    def __init__(self, settings: ArtifactStoreSettings) -> None:
        self._name = settings.s3_bucket
        # Its warnings contain URLs, and so signatures.
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        # Enough for a short failure or an idle connection that was closed. Callers retry for longer.
        retries = urllib3.Retry(
            2,
            connect=1,
            read=1,
            status=2,
            backoff_factor=0.1,
            status_forcelist=[500, 502, 503, 504],
            raise_on_status=False,
        )
        self._pool = S3Pool(
            timeout=urllib3.Timeout(connect=_CONNECT_S, read=_READ_S), maxsize=_MAX_THREADS, retries=retries
        )
        endpoint, secure = settings.endpoint()
        self._client = Minio(
            endpoint=endpoint,
            access_key=settings.s3_access_key.get_secret_value(),
            secret_key=settings.s3_secret_key.get_secret_value(),
            secure=secure,
            region=settings.s3_region,  # given, so that signing needs no request
            http_client=self._pool,
        )
        self._threads = ThreadPoolExecutor(_MAX_THREADS, "s3")
        self._streams = ThreadPoolExecutor(settings.artifact_uploads, "s3-stream")

    async def ensure(self) -> None:
        """Create the bucket if it does not exist."""

        def ensure() -> None:
            if not self._client.bucket_exists(self._name):
                try:
                    self._client.make_bucket(self._name)
                except S3Error as error:
                    if error.code not in _EXISTS_CODES:
                        raise

        await self._run(ensure)

    async def size(self, key: str) -> int | None:
        """Return the size of an object in bytes, or None if it does not exist."""
        try:
            return await self._run(lambda: self._client.stat_object(self._name, key).size)
        except BytesMissing:
            return None

    async def write(self, key: str, body: bytes) -> None:
        """Write an object from memory. The pool may repeat the request, since it writes the same bytes."""
        await self._run(lambda: self._put(key, body, len(body), retries=None, read_s=_READ_S))

    async def write_stream(self, key: str, chunks: Iterable[bytes], size: int) -> None:
        """Write an object of `size` bytes from chunks, which are read in a thread.

        An error of the iterator ends the write.

        The object exists only once all bytes are stored. `put_object` is not used: it buffers parts in memory and
        hashes each a second time.
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
        """Return exactly `length` bytes (at least one) from `offset`.

        Raises BytesMissing if the object does not exist.
        """
        return await self._run(lambda: self._get(key, offset, length))

    def _get(self, key: str, offset: int, length: int) -> bytes:
        response = self._client.get_object(self._name, key, offset=offset, length=length)
        try:
            if int(response.headers.get("content-length", length)) > length:  # The server ignored the range.
                left = offset
                while left > 0 and (skipped := len(response.read(min(left, 1 << 20)))):
                    left -= skipped
            data = response.read(length)
        finally:
            response.close()
            response.release_conn()
        if len(data) != length:
            raise StorageUnavailable("the S3 server sent fewer bytes than it announced")
        return data

    async def remove(self, key: str) -> None:
        """Delete an object, in one request that is not repeated. A missing object is no error."""

        def delete() -> None:
            url = self._client.get_presigned_url("DELETE", self._name, key, expires=_UPLOAD_URL_LIFETIME)
            response = self._pool.urlopen("DELETE", url, retries=False)
            if response.status not in {HTTPStatus.OK, HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND}:
                raise ServerError("delete", response.status)

        await self._run(delete)

    async def listed(self, after: str | None, limit: int) -> list[Listed]:
        """Return the next objects in the order of their keys."""

        def found() -> Iterator[Listed]:
            for each in self._client.list_objects(self._name, recursive=True, start_after=after):
                if each.object_name and each.last_modified and not each.is_dir:
                    yield Listed(each.object_name, each.size or 0, int(each.last_modified.timestamp() * 1000))

        return await self._run(lambda: list(islice(found(), limit)))

    async def _run(self, call: Callable[[], T], threads: ThreadPoolExecutor | None = None) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(threads or self._threads, call)
        except S3Error as error:
            if error.code in _MISSING_CODES:
                raise BytesMissing from None
            raise StorageUnavailable(f"the S3 server answered with the error {error.code}") from None
        except ServerError as error:
            raise StorageUnavailable(f"the S3 server answered with status {error.status_code}") from None
        except InvalidResponseError:
            raise StorageUnavailable("the S3 server sent an invalid answer") from None
        except (MinioException, urllib3.exceptions.HTTPError, OSError) as error:
            raise StorageUnavailable(f"the S3 server cannot be reached ({type(error).__name__})") from None

    def close(self) -> None:
        """Close threads and connections. Calls in progress finish."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._streams.shutdown(wait=False, cancel_futures=True)
        self._pool.clear()
