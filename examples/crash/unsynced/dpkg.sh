#!/bin/sh
# dpkg under power cuts with its syncs off: a step installs a package of 20 files, each third one a second version of an earlier one.
set -eu
STEPS=40

in_root() {
    dpkg --root="$PWD/root" --force-not-root --force-script-chrootless --force-unsafe-io --log=/dev/null "$@"
}

# The package that a step installs, and its version: each third step upgrades the package of the step before.
package_of() {
    if [ $(($1 % 3)) = 0 ]; then package=step$(($1 - 1)) version=2; else package=step$1 version=1; fi
}

setup() {
    mkdir -p root/var/lib/dpkg/info root/var/lib/dpkg/updates
    touch root/var/lib/dpkg/status
    for step in $(seq $STEPS); do
        package_of "$step"
        mkdir -p tree/DEBIAN "tree/usr/share/$package"
        printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: a test\n' \
            "$package" "$version" >tree/DEBIAN/control
        for file in $(seq 20); do
            seq "$step" 200 $((5000 * (1 + file % 7))) >"tree/usr/share/$package/$file"
        done
        (cd tree && sha256sum usr/share/*/*) >"$step.sums"
        dpkg-deb --root-owner-group -Znone -b tree "$step.deb" >/dev/null
        rm -r tree
    done
}

take_step() {
    in_root -i "$1.deb"
}

# State, name and version of each package; what dpkg-query says besides is an error.
known_packages() {
    said=$(dpkg-query --admindir=root/var/lib/dpkg -W -f '${db:Status-Abbrev} ${Package} ${Version}\n' 2>&1) || true
    if echo "$said" | grep -v "no packages found" | grep '^dpkg-query: '; then return 1; fi
    echo "$said" | grep -v '^dpkg-query: ' || true
}

list_steps() {
    quiet in_root --configure -a >/dev/null || true
    known=$(known_packages) || { echo "$known"; return 1; }
    # A package that dpkg knows to be half installed is installed again: its second version, if it had one before.
    middle=$(echo "$known" | grep -v '^ii ' | grep . || true)
    if [ -n "$middle" ]; then
        step=$(echo "$middle" | sed 's/.*step\([0-9]*\).*/\1/')
        [ "${middle##* }" = "" ] || [ $((step % 3)) != 2 ] || step=$((step + 1))
        quiet take_step "$step" || { echo "$middle"; return 1; }
        known=$(known_packages) || { echo "$known"; return 1; }
    fi
    for step in $(seq $STEPS); do
        package_of "$step"
        case $known in
            *"ii  $package $version"*) (cd root && sha256sum -c --quiet "../$step.sums") || return 1 ;;
            # Its upgrade has replaced it.
            *"ii  $package 2"*) ;;
            *) continue ;;
        esac
        echo "$step"
    done
}

. "${0%/*}/steps.sh"
