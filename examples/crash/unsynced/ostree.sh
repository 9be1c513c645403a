#!/bin/sh
# OSTree under power cuts with its syncs off: a step commits a tree of which half is new.
set -eu
STEPS=40

setup() {
    ostree init --repo=repo --mode=archive
    ostree config --repo=repo set core.fsync false
    mkdir tree
}

take_step() {
    for file in 1 2 3 4 5 6; do
        seq "$1" "$file" $((1000 * file)) >"tree/$((($1 + file) % 12))"
    done
    ostree commit --repo=repo --branch=main --subject="$1" --tree=dir=tree
}

list_steps() {
    [ -e repo/refs/heads/main ] || return 0
    quiet ostree fsck --repo=repo || return 1
    ostree log --repo=repo main | sed -n 's/^    \([0-9]*\)$/\1/p' | sort -n
}

. "${0%/*}/steps.sh"
