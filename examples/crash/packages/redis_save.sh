#!/bin/sh
# Redis without an append-only file, under power cuts: what a SAVE has answered for is there.
#
# redis_save.sh run and redis_save.sh check.
set -eu

. "${0%/*}/../redis_server.sh"

run() {
    start --appendonly no
    for number in 1 2 3; do
        [ "$(redis set key $number)" = OK ]
        [ "$(redis save)" = OK ]
        echo $number >>"$WEIR_ACK"
    done
    kill -KILL "$server"
    wait "$server" || true
}

check() {
    start --appendonly no
    last=$(tail -n 1 "$WEIR_ACKED")
    found=$(redis get key)
    kill -KILL "$server"
    [ "${found:-0}" -ge "${last:-0}" ] || { echo "key has version ${found:-0}, and $last was saved"; exit 1; }
}

"$@"
