"""The only service with the keys of the S3 server: put, get, list, delete, assemble, expire."""
