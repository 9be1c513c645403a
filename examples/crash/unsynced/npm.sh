#!/bin/sh
# npm under power cuts with its syncs off: a step installs a local package of ten files.
set -eu
STEPS=16
export npm_config_cache=$PWD/cache npm_config_userconfig=/dev/null npm_config_update_notifier=false npm_config_offline=true
export npm_config_audit=false npm_config_fund=false

setup() {
    echo '{ "name": "steps", "version": "1.0.0", "dependencies": {} }' >package.json
    for step in $(seq $STEPS); do
        mkdir -p package
        echo "{ \"name\": \"step$step\", \"version\": \"1.0.0\" }" >package/package.json
        for file in 1 2 3 4 5 6 7 8 9; do
            seq -f 'exports.a%g = 1' "$step" $((300 * file)) >package/$file.js
        done
        tar -czf "step$step.tgz" package
        rm -r package
    done
}

take_step() {
    npm install "./step$1.tgz"
}

# npm writes package.json last: a step is there if its dependencies name it, and then all files are those of the package.
list_steps() {
    node -e '
        const { existsSync, readFileSync } = require("fs");
        for (const name of ["package.json", "package-lock.json", "node_modules/.package-lock.json"])
            if (existsSync(name)) JSON.parse(readFileSync(name));
        const { dependencies } = JSON.parse(readFileSync("package.json"));
        for (const name of Object.keys(dependencies)) console.log(name.slice("step".length));
    ' >listed 2>&1 || { grep Error listed; return 1; }
    sort -n listed >steps
    for step in $(cat steps); do
        tar -xzf "step$step.tgz"
        quiet diff -r package "node_modules/step$step" || return 1
        rm -r package
    done
    [ ! -s steps ] || quiet npm ls || return 1
    cat steps
}

. "${0%/*}/steps.sh"
