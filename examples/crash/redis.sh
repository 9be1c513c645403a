#!/bin/sh
# Redis with an append-only file under power cuts: a key for each number, acknowledged when Redis has answered.
#
# redis.sh run APPENDFSYNC, and redis.sh check.
set -eu

. "${0%/*}/redis_server.sh"

run() {
    start --appendonly yes --appendfsync "$1"
    for number in 1 2 3 4 5 6 7 8 9 10 11 12; do
        [ "$(redis set "key:$number" "value $number")" = OK ]
        echo "$number" >>"$WEIR_ACK"
    done
    redis shutdown nosave >/dev/null 2>&1 || true
    wait "$server"
}

check() {
    start --appendonly yes --appendfsync no
    last=$(tail -n 1 "$WEIR_ACKED")
    for number in $(seq 1 "${last:-0}"); do
        [ "$(redis get "key:$number")" = "value $number" ] || { echo "key $number of $last is lost"; exit 1; }
    done
    kill -KILL "$server"
}

"$@"
