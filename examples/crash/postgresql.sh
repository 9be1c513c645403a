#!/bin/sh
# PostgreSQL under power cuts: a row for each number, a transaction each, acknowledged when it is committed.
#
# postgresql.sh setup, postgresql.sh run FSYNC, and postgresql.sh check.
set -eu
# It refuses to run as root: here it is told another number.
[ "$(id -u)" != 0 ] || exec unshare --user --map-user=1000 --map-group=1000 "$0" "$@"
PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH

# Starts a server on this directory, whose socket is elsewhere.
start() {
    sockets=$(mktemp -d)
    trap 'rm -r "$sockets"' EXIT
    pg_ctl -D data -l "$sockets/log" -w -t 50 -o "-k $sockets -h '' -c fsync=$1 -c shared_buffers=1MB -c max_connections=5 \
        -c autovacuum=off -c dynamic_shared_memory_type=mmap -c shared_memory_type=mmap" start >/dev/null ||
        { cat "$sockets/log"; echo "it does not start"; exit 1; }
}

setup() {
    initdb -D data -A trust -E UTF8 --locale=C --no-sync --wal-segsize=1 >/dev/null
    start off
    psql -q -h "$sockets" postgres -c 'CREATE TABLE numbers (number int PRIMARY KEY, text text)'
    pg_ctl -D data -w -m fast stop >/dev/null
}

run() {
    start "$1"
    for number in 1 2 3 4 5 6 7 8; do
        psql -q -h "$sockets" postgres -c "INSERT INTO numbers VALUES ($number, repeat('$number', 500))"
        echo "$number" >>"$WEIR_ACK"
        [ "$number" != 4 ] || psql -q -h "$sockets" postgres -c CHECKPOINT
    done
    pg_ctl -D data -w -m immediate stop >/dev/null
}

check() {
    last=$(tail -n 1 "$WEIR_ACKED")
    rm -f data/postmaster.pid
    start off
    found=$(psql -At -h "$sockets" postgres -c "SELECT count(*) FROM numbers WHERE text = repeat(number::text, 500)" 2>&1) || { echo "$found"; exit 1; }
    pg_ctl -D data -w -m immediate stop >/dev/null
    [ "$found" -ge "${last:-0}" ] || { echo "$found rows, and $last was committed"; exit 1; }
}

"$@"
