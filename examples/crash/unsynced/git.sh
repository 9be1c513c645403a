#!/bin/sh
# git under power cuts with its syncs off: a step is a commit of a new file and of one that each commit changes; each tenth repacks.
set -eu
STEPS=40
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

setup() {
    git init -q -b main
    git config core.fsync none
    git config gc.auto 0
}

take_step() {
    seq "$1" 3 $((1000 * (1 + $1 % 7))) >"file$1"
    echo "$1" >>numbers
    git add "file$1" numbers
    git commit -q -m "$1"
    [ $(($1 % 10)) != 0 ] || git repack -adq
}

list_steps() {
    # Locks of a git that was ended are deleted, as it says itself.
    find .git -name '*.lock' -delete
    quiet git fsck --full --strict --no-dangling || return 1
    git show-ref -q main || return 0
    newest=$(git log -1 --format=%s) || return 1
    # The index and the files of all commits; those of the next step may be there.
    git diff --quiet HEAD -- $(seq -f 'file%g' "$newest") || { git status --short; return 1; }
    git log --reverse --format=%s
}

. "${0%/*}/steps.sh"
