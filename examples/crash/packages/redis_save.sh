#!/bin/sh
# Redis without an append-only file, under power cuts: what a SAVE has answered for is there.
#
# redis_save.sh run and redis_save.sh check.
set -eu

# Starts a server on this directory, whose socket is elsewhere; `redis` talks to it.
start() {
    sockets=$(mktemp -d)
    trap 'rm -r "$sockets"' EXIT
    redis-server --port 0 --unixsocket "$sockets/s" --save '' --appendonly no --dir . >"$sockets/log" 2>&1 &
    server=$!
    until [ "$(redis ping 2>&1)" = PONG ]; do
        kill -0 "$server" 2>/dev/null || { cat "$sockets/log"; echo "it does not start"; exit 1; }
        sleep 0.02
    done
}

redis() {
    redis-cli -s "$sockets/s" "$@"
}

run() {
    start
    for number in 1 2 3; do
        [ "$(redis set key $number)" = OK ]
        [ "$(redis save)" = OK ]
        echo $number >>"$WEIR_ACK"
    done
    kill -KILL "$server"
    wait "$server" || true
}

check() {
    start
    last=$(tail -n 1 "$WEIR_ACKED")
    found=$(redis get key)
    kill -KILL "$server"
    [ "${found:-0}" -ge "${last:-0}" ] || { echo "key has version ${found:-0}, and $last was saved"; exit 1; }
}

"$@"
