"""The only service that talks S3: put, get, list, delete, presign, expire."""
