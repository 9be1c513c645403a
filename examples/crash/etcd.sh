#!/bin/sh
# etcd under power cuts: a key for each number, acknowledged when etcd has answered.
#
# etcd.sh setup, etcd.sh run [--unsafe-no-fsync], and etcd.sh check.
set -eu

# Starts a server on this directory, whose sockets are elsewhere; `client` talks to it.
start() {
    sockets=$(mktemp -d)
    trap 'rm -r "$sockets"' EXIT
    # etcd takes `localhost` and a number for the name of a socket in its directory.
    data=$PWD/data
    cd "$sockets"
    etcd --data-dir "$data" --listen-client-urls unix://localhost:1 --advertise-client-urls unix://localhost:1 \
        --listen-peer-urls unix://localhost:2 --initial-advertise-peer-urls unix://localhost:2 \
        --initial-cluster default=unix://localhost:2 --snapshot-count 8 "$@" >log 2>&1 &
    server=$!
    until client get key >/dev/null 2>&1; do
        kill -0 "$server" 2>/dev/null || { grep -E 'panic|fatal|"error"' log | tail -n 3; echo "it does not start"; exit 1; }
        sleep 0.05
    done
}

client() {
    etcdctl --endpoints unix://localhost:1 --dial-timeout 1s "$@"
}

setup() {
    start
    kill "$server"
    wait "$server" || true
}

run() {
    start "$@"
    for number in 1 2 3 4 5 6 7 8 9 10 11 12; do
        client put "key$number" "value $number" >/dev/null
        echo "$number" >>"$WEIR_ACK"
    done
    kill "$server"
    wait "$server" || true
}

check() {
    last=$(tail -n 1 "$WEIR_ACKED")
    start
    found=$(client get key --prefix --print-value-only)
    kill -KILL "$server"
    for number in $(seq 1 "${last:-0}"); do
        echo "$found" | grep -qx "value $number" || { echo "key $number of $last is lost"; exit 1; }
    done
}

"$@"
