# A Redis server on the working directory, for redis.sh and packages/redis_save.sh, which read this file.

# Starts a server with these options, whose socket is elsewhere; `redis` talks to it.
start() {
    sockets=$(mktemp -d)
    trap 'rm -r "$sockets"' EXIT
    redis-server --port 0 --unixsocket "$sockets/s" --save '' "$@" --dir . >"$sockets/log" 2>&1 &
    server=$!
    until [ "$(redis ping 2>&1)" = PONG ]; do
        kill -0 "$server" 2>/dev/null || { cat "$sockets/log"; echo "it does not start"; exit 1; }
        sleep 0.02
    done
}

redis() {
    redis-cli -s "$sockets/s" "$@"
}
