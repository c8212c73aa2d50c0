"""The only service with the keys of the S3 server: put, get, list, delete, assemble, expire."""

from services.runtime import import_without, import_without_part

# The administration of MinIO servers needs ciphers. FastStream needs uvicorn for HTTP only.
import_without_part("minio", "minioadmin", "MinioAdmin")
import_without("faststream", "uvicorn")
