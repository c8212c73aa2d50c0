#!/bin/sh
# Starts the NATS container's server: start.sh [FOLDER [CONFIGURATION]].
#
# Before NATS had accounts, everything was stored in the folder of its default account, `$G`. The services are now in the account CORE, so
# that folder is renamed once, here, where no other server has it open (docs/deploy.md#upgrade). Needs what the image has: busybox.
set -eu
default="${1:-/data}/jetstream/\$G" core="${1:-/data}/jetstream/CORE"
has_streams() { [ -n "$(ls "$1/streams" 2>/dev/null)" ]; }

if has_streams "$default"; then
  if has_streams "$core"; then
    echo "$default and $core both hold streams; rename the one that is not needed" >&2
    exit 78
  fi
  rm -rf "$core"
  mv "$default" "$core"
  echo "renamed $default to $core"
fi
exec nats-server -c "${2:-/etc/nats/nats.conf}"
