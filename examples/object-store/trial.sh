#!/bin/bash
# Tries an object store as a place for a replica: ships, checks, restores, mounts it, kills a mount, and has two writers
# meet.
#
#   AWS_ENDPOINT_URL=... AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... trial.sh s3://BUCKET/PREFIX DIRECTORY
#
# The bucket exists, and has nothing below PREFIX. DIRECTORY is a new one, of 2 GB. `weir` is on PATH; it takes sqlite3,
# jq, FUSE and the superuser. It ends at the first thing that is not as it should be.
set -euo pipefail
url=$1 work=$2
mkdir "$work" && cd "$work" && mkdir m other copy
trap 'for d in m other copy; do mountpoint -q $d && { weir umount $d || umount -l $d; }; done' EXIT

say() { echo "$(date -u +%T) $*"; }
number() { sqlite3 "file:$1/db?mode=ro${2-}" 'PRAGMA integrity_check; SELECT ifnull(max(a), 0) FROM t' | tr '\n' ' '; }
status() { weir status "$1" --json | jq -c "$2" || true; }
await() { # DIRECTORY WHAT: until the status has it
    for _ in $(seq 300); do [ "$(status "$1" "$2")" = true ] && return; sleep 0.1; done
    echo "$1: $2 does not come" && status "$1" .replication && false
}
insert() { # FROM TO: rows of 700 bytes, a commit each; prints the last one that has returned
    (echo "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE IF NOT EXISTS t(a INTEGER PRIMARY KEY, b);"
    for n in $(seq "$1" "$2"); do echo "INSERT INTO t VALUES($n, randomblob(700)); SELECT $n;"; sleep 0.003; done) |
        stdbuf -oL sqlite3 -bail m/db 2>/dev/null | grep --line-buffered -v wal
}

say "1. a closed volume"
weir mkfs --volume a.weir --size 512M >/dev/null
weir mount a.weir m
insert 1 300 | tail -1
cp -r /usr/include m/tree
(cd m/tree && find . -type f -exec sha256sum {} + | sort) >sums
weir umount m
time weir replicate a.weir "$url"
weir replicate --check "$url"
time weir restore "$url" b.weir
weir volume check b.weir
weir mount b.weir m --read-only
number m '&immutable=1'
(cd m/tree && find . -type f -exec sha256sum {} + | sort) | cmp - sums
weir umount m && rm b.weir

say "2. a mount of the replica"
time weir mount "$url" copy --read-only
(cd copy/tree && find . -type f -exec sha256sum {} + | sort) | cmp - sums
weir umount copy

say "3. the mount is killed while it ships, three times"
for round in 1 2 3; do
    weir mount a.weir m --replicate "$url" --lag 300ms
    from=$((round * 100000))
    insert $from $((from + 50000)) >told & inserting=$!
    sleep 2
    early=$(tail -1 told)
    sleep 2
    status m '.replication | {lag_ms, lag_bytes}' | tr '\n' ' '
    kill -9 "$(status m .pid)"
    wait $inserting || true
    umount -l m
    weir restore "$url" b.weir >/dev/null
    weir mount b.weir m
    found=$(number m)
    echo "acknowledged $(tail -1 told), two seconds before $early, restored: $found"
    [ "$early" -le "${found#ok }" ]
    weir umount m && rm b.weir
done

say "4. fsync waits for the store, and the mount is killed"
weir mount a.weir m --replicate "$url" --sync remote
insert 500000 600000 >told & inserting=$!
sleep 6
kill -9 "$(status m .pid)"
wait $inserting || true
umount -l m
weir restore "$url" b.weir >/dev/null
weir mount b.weir m
found=$(number m)
echo "acknowledged $(tail -1 told), restored: $found"
[ "$(tail -1 told)" -le "${found#ok }" ]
weir umount m && rm b.weir

say "5. two writers"
weir mount a.weir m --replicate "$url" --lag 300ms
await m '.replication.behind == false and .replication.stopped == false'
insert 700000 700100 | tail -1
sync -f m && sleep 7 # A copy that is older than the replica would be refused.
cp --sparse=always a.weir second.weir
weir mount second.weir other --after-crash --replicate "$url" --lag 300ms
cp -r m/tree other/only
insert 700200 701000 | tail -1
await m '.replication.stopped == true'
status m '.replication | {stopped, trouble}'
status other '.replication | {behind, stopped, trouble}'
weir umount m || true
weir umount other
weir replicate --check "$url"

say "6. the volume that lost comes back: it is refused where it is behind, else the replica is as it is"
if weir replicate a.weir "$url"; then
    weir restore "$url" b.weir
    weir disk --volume a.weir m
    weir disk --volume b.weir copy
    cmp m/disk copy/disk
    weir umount m
    weir umount copy
fi
say "all as it should be"
