#!/bin/sh
# Borg under power cuts with its syncs off: a step makes an archive of files of which some are new.
set -eu
STEPS=20
export BORG_BASE_DIR=$PWD/base BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes BORG_RELOCATED_REPO_ACCESS_IS_OK=yes

setup() {
    mkdir base files
    borg init --encryption none repo
}

take_step() {
    for file in 1 2 3 4 5 6; do
        seq "$1" "$file" $((10000 * file)) >"files/$((($1 + file) % 12))"
    done
    borg create "repo::$1" files
}

list_steps() {
    quiet borg break-lock repo || return 1
    # Its cache is made again where the repository is another one's.
    export BORG_BASE_DIR=$PWD/check
    quiet borg check --verify-data repo || return 1
    borg list --short repo 2>/dev/null
}

. "${0%/*}/steps.sh"
