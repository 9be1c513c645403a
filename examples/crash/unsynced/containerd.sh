#!/bin/sh
# containerd under power cuts with its syncs off: a step imports an image with a layer of ten files, and unpacks it (snapshotter
# native). It takes the superuser.
set -eu
STEPS=16
HERE=$(dirname "$(realpath "$0")")

# Starts containerd on this directory; its state and its sockets are elsewhere.
start() {
    sockets=$(mktemp -d)
    trap stop EXIT
    cat >"$sockets/config" <<END
version = 2
root = "$PWD/root"
state = "$sockets/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
address = "$sockets/s"
END
    containerd --config "$sockets/config" --log-level error >"$sockets/log" 2>&1 &
    server=$!
    tries=0
    until images list >/dev/null 2>&1; do
        tries=$((tries + 1))
        { kill -0 "$server" 2>/dev/null && [ $tries -lt 150 ]; } || { echo "it does not start"; tail -n 3 "$sockets/log"; return 1; }
        sleep 0.1
    done
}

stop() {
    kill -KILL "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    rm -rf "$sockets"
}

images() {
    timeout 20 ctr --address "$sockets/s" images "$@"
}

snapshots() {
    timeout 20 ctr --address "$sockets/s" snapshots --snapshotter native "$@"
}

setup() {
    for step in $(seq $STEPS); do
        /usr/bin/python3 -SE "$HERE/make_image.py" "step$step.tar" "$step"
    done
}

take_step() {
    start && images import --snapshotter native "step$1.tar"
}

# An image is there if it is complete and unpacked; one that is not unpacked yet may be the next.
list_steps() {
    start || return 1
    images check --snapshotter native >listed || return 1
    if grep -v '^REF' listed | grep -v ' complete '; then return 1; fi
    blobs=root/io.containerd.content.v1.content/blobs/sha256
    [ ! -d $blobs ] || quiet eval "(cd $blobs && sha256sum * | awk '\$1 != \$2 { exit 1 }')" || { echo "a blob is torn"; return 1; }
    # The layers here are not compressed, so that a snapshot has the number of its layer's blob.
    for layer in $(snapshots list | awk '$NF == "Committed" { print $1 }'); do
        quiet snapshots view "view-$layer" "$layer" || return 1
        directory=$(snapshots mounts / "view-$layer" | awk '{ print $4 }')
        quiet tar --compare -f "$blobs/${layer#sha256:}" -C "$directory" || return 1
    done
    sed -n 's/^local.step:\([0-9]*\) .* true *$/\1/p' listed | sort -n
}

. "${0%/*}/steps.sh"
