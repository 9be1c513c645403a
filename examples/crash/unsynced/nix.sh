#!/bin/sh
# Nix under power cuts with its syncs off: a step adds a directory of ten files to a store.
set -eu
STEPS=40
export NIX_CONF_DIR=/nonexistent NIX_CONFIG='build-users-group =
fsync-metadata = false'
export HOME="$PWD/home"

in_store() {
    nix-store --store "$PWD/root" "$@"
}

setup() {
    mkdir home
    for step in $(seq $STEPS); do
        mkdir "step$step"
        for file in 1 2 3 4 5 6 7 8 9 10; do
            seq "$step" "$file" $((1000 * file)) >"step$step/$file"
        done
    done
    in_store --init
}

take_step() {
    in_store --add "step$1"
}

list_steps() {
    verified=$(in_store --verify --check-contents 2>&1) || { echo "$verified"; return 1; }
    # It takes what has disappeared out of its database.
    if echo "$verified" | grep -e disappeared -e modified; then return 1; fi
    in_store --dump-db | sed -n 's/^.*-step\([0-9]*\)$/\1/p' | sort -n
}

. "${0%/*}/steps.sh"
