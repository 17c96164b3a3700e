#!/bin/sh
# Follows a stream with curl: follow.sh ADDRESS TOKEN FILE. FILE gets the events; the end is a response 204.
while [ "$status" != 204 ]; do
  [ "$status" = 200 ] || sleep 0.5
  # Only a complete event confirms its cursor.
  cursor=$(awk '/^id: / { last = substr($0, 5) } /^$/ { cursor = last } END { print cursor }' "$3" 2>/dev/null)
  status=$(curl -sfN "$1" -H "Authorization: Bearer $2" -H "Last-Event-ID: $cursor" \
    -w '%{stderr}%{http_code}' 2>&1 >>"$3")
done
