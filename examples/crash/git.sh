#!/bin/sh
# git under power cuts: three commits and a repack, each commit acknowledged by its number.
#
# git.sh setup FSYNC, git.sh run, and git.sh check [WHAT]; FSYNC is the value of core.fsync, or default. WHAT is `durable`
# if a commit must be there when git has returned, and not only be whole if it is there.
set -eu
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

setup() {
    git init -q -b main
    [ "$1" = default ] || git config core.fsync "$1"
    git config gc.auto 0
    commit 0
}

commit() {
    seq "$(($1 * 100))" "$(($1 * 100 + 2000))" >file
    git add file
    git commit -q -m "$1"
}

run() {
    for number in 1 2 3; do
        commit $number
        echo $number >>"$WEIR_ACK"
    done
}

check() {
    last=$(tail -n 1 "$WEIR_ACKED")
    found=$(git log -1 --format=%s main) || return 1
    [ "${1:-}" != durable ] || [ "$found" -ge "${last:-0}" ] || { echo "commit $found, and $last was made"; return 1; }
    # The index is read, and so is all that the branch leads to.
    git status --short >/dev/null
    git rev-list --objects main >"$WEIR_ACKED.objects"
    cut -d " " -f 1 "$WEIR_ACKED.objects" | git cat-file --batch >"$WEIR_ACKED.content"
    ! grep -a " missing$" "$WEIR_ACKED.content"
}

"$@"
