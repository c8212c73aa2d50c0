#!/bin/sh
# The health check of the NATS container: exit 0 when the server stores. Usage: healthy.sh [HOST [PORT [FOLDER [PID]]]].
#
# A server whose disk was full does not store before it is started again: it remembers the error, or has turned JetStream off (versions
# differ). So once there is room, it is told to end, and compose starts it again. Needs what the image has: busybox.
host="${1:-127.0.0.1}" port="${2:-8222}" folder="${3:-/data}" pid="${4:-1}"
room_kib=16384
# JetStream is off while a server reads its store, too; that is over by then.
started_s=600

case "$(wget -q -O - "http://$host:$port/healthz" 2>/dev/null)" in *'"ok"'*) exit 0 ;; esac

# wget of busybox does not show what a refusal says.
reason=$({ printf 'GET /healthz HTTP/1.0\r\nHost: %s\r\n\r\n' "$host"; sleep 1; } | nc -w 2 "$host" "$port" 2>/dev/null | tail -n 1)
echo "$reason"
case "$reason" in
  *"write error"* | *"no space"*) ;;
  *"not enabled"* | *"disabled"*)
    age_s=$(awk -v at="$(awk '{ print $22 }' "/proc/$pid/stat")" '{ print int($1 - at / 100) }' /proc/uptime)
    [ "${age_s:-0}" -ge "$started_s" ] || exit 1
    ;;
  *) exit 1 ;;
esac
free_kib=$(df -Pk "$folder" | awk 'NR == 2 { print $4 }')
if [ "${free_kib:-0}" -ge "$room_kib" ]; then
  echo "it does not store although $folder has room: ending it, to start it again"
  kill -TERM "$pid"
fi
exit 1
