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

# npm empties package.json and package-lock.json and writes them in place, both at one time, then that in node_modules: a kill in
# between leaves them empty. So the steps are in the first that is not, and then all files are those of the packages.
list_steps() {
    node -e '
        const { existsSync, readFileSync } = require("fs");
        const [project, lock, installed] = ["package.json", "package-lock.json", "node_modules/.package-lock.json"].map((name) => {
            const text = existsSync(name) ? readFileSync(name, "utf8") : "";
            return text && JSON.parse(text);
        });
        const packages = ({ packages }) => Object.keys(packages).filter((name) => name);
        if (!project && !lock && !installed) throw Error("no list of packages is whole");
        const names = project ? Object.keys(project.dependencies) : packages(lock || installed);
        for (const name of names) console.log(name.replace(/.*step/, ""));
    ' >listed 2>&1 || { grep Error listed; return 1; }
    sort -n listed >steps
    for step in $(cat steps); do
        tar -xzf "step$step.tgz"
        quiet diff -r package "node_modules/step$step" || return 1
        rm -r package
    done
    # What is whole is not unpacked again; but a kill between the three lists leaves them different until then.
    [ ! -s steps ] || [ ! -s package.json ] || { quiet npm install && quiet npm ls; } || return 1
    cat steps
}

. "${0%/*}/steps.sh"
