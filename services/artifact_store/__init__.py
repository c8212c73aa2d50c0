"""The only service that has the keys of the S3 server: put, get, list, delete, presign, assemble, expire."""
