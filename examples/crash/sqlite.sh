#!/bin/sh
# SQLite under power cuts: a table of numbers, a transaction each, acknowledged when it is committed.
#
# sqlite.sh run JOURNAL SYNCHRONOUS, and sqlite.sh check.
set -eu

run() {
    {
        echo "PRAGMA journal_mode = $1; PRAGMA synchronous = $2; PRAGMA wal_autocheckpoint = 8;"
        echo "CREATE TABLE numbers (number INTEGER PRIMARY KEY, text TEXT); CREATE INDEX texts ON numbers (text);"
        for number in 1 2 3 4 5 6 7 8 9 10; do
            echo "BEGIN; INSERT INTO numbers VALUES ($number, hex(zeroblob(700)) || $number);"
            echo "UPDATE numbers SET text = text || '.' WHERE number % 3 = $number % 3; COMMIT;"
            echo ".shell echo $number >>\"\$WEIR_ACK\""
        done
    } | sqlite3 -bail data.db >/dev/null
}

check() {
    last=$(tail -n 1 "$WEIR_ACKED")
    [ -e data.db ] || { [ -z "$last" ] && return 0; echo "no database, and $last was committed"; return 1; }
    found=$(sqlite3 -bail data.db "PRAGMA integrity_check; SELECT count(*) FROM numbers" 2>&1) || {
        # A table that was never acknowledged need not be there.
        [ -z "$last" ] && case $found in *"no such table"*) return 0 ;; esac
        echo "$found"
        return 1
    }
    set -- $found
    [ "$1" = ok ] || { echo "$found"; return 1; }
    [ "$2" -ge "${last:-0}" ] || { echo "$2 numbers, and $last was committed"; return 1; }
}

"$@"
