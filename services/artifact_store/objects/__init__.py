"""The objects in the S3 bucket: the only room that knows the S3 client."""
