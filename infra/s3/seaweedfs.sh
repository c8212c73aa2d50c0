#!/bin/sh
# Starts SeaweedFS as an S3 server with the deployment's two keys; without keys it would let everybody in. Switched off are its defaults that
# report statistics, serve files without a key, create buckets unasked, and delete buckets that are not empty.
set -eu
AWS_ACCESS_KEY_ID=$(cat /s3-secrets/access_key)
AWS_SECRET_ACCESS_KEY=$(cat /s3-secrets/secret_key)
[ -n "$AWS_ACCESS_KEY_ID" ] && [ -n "$AWS_SECRET_ACCESS_KEY" ]
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
exec weed -logtostderr=true mini -dir=/data -ip=127.0.0.1 -ip.bind=0.0.0.0 -s3.port=9000 \
  -s3.autoCreateBucket=false -s3.allowDeleteBucketNotEmpty=false -s3.port.iceberg=0 -s3.port.lance=0 -s3.localSocket=/tmp/s3.sock \
  -filer.localSocket=/tmp/filer.sock -master.telemetry=false -disableHttp=true -admin.ui=false -webdav=false
