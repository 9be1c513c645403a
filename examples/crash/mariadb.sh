#!/bin/sh
# MariaDB under power cuts: a row for each number in each of two tables, a transaction each, acknowledged when it is committed.
#
# mariadb.sh setup, mariadb.sh run FLUSH, and mariadb.sh check; FLUSH is innodb_flush_log_at_trx_commit.
set -eu

# Starts a server on this directory, whose socket is elsewhere; `query` talks to it.
start() {
    sockets=$(mktemp -d)
    trap 'rm -r "$sockets"' EXIT
    mariadbd --no-defaults --user="$(id -un)" --datadir="$PWD/data" --socket="$sockets/s" --pid-file="$sockets/p" --tmpdir="$sockets" \
        --skip-networking --skip-grant-tables --innodb-buffer-pool-size=8M --innodb-log-file-size=4M --innodb-flush-method=fsync \
        --innodb-use-native-aio=0 --innodb-flush-log-at-trx-commit="$1" --performance-schema=0 >"$sockets/log" 2>&1 &
    server=$!
    until query "SELECT 1" >/dev/null 2>&1; do
        kill -0 "$server" 2>/dev/null || { grep -a ERROR "$sockets/log"; echo "it does not start"; exit 1; }
        sleep 0.05
    done
}

query() {
    mariadb --no-defaults --socket="$sockets/s" -N -e "$1" numbers
}

setup() {
    mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$PWD/data" --auth-root-authentication-method=normal \
        --innodb-log-file-size=4M --innodb-fast-shutdown=0 --skip-test-db >/dev/null 2>&1
    mkdir data/numbers
    start 1
    query "CREATE TABLE one (number INT PRIMARY KEY, text TEXT) ENGINE=InnoDB; CREATE TABLE two LIKE one"
    kill "$server"
    wait "$server"
}

run() {
    start "$1"
    for number in 1 2 3 4 5 6 7 8; do
        row="VALUES ($number, REPEAT('$number', 500))"
        query "START TRANSACTION; INSERT INTO one $row; INSERT INTO two $row; COMMIT"
        echo "$number" >>"$WEIR_ACK"
    done
    kill "$server"
    wait "$server"
}

check() {
    last=$(tail -n 1 "$WEIR_ACKED")
    start 0
    found=$(query "CHECK TABLE one, two EXTENDED; CHECKSUM TABLE one, two; SELECT COUNT(*) FROM one" 2>&1) || { echo "$found"; exit 1; }
    kill -KILL "$server"
    set -- $found
    [ "$4$8" = OKOK ] || { echo "$found"; exit 1; }
    [ "${10}" = "${12}" ] || { echo "the tables differ: a transaction is there in part"; exit 1; }
    [ "${13}" -ge "${last:-0}" ] || { echo "${13} rows, and $last was committed"; exit 1; }
}

"$@"
