#!/bin/sh
# dpkg under power cuts: two versions of a package, one after the other, acknowledged when dpkg says that it is installed.
#
# dpkg.sh setup, dpkg.sh run [--force-unsafe-io], and dpkg.sh check.
set -eu

in_root() {
    dpkg --root="$PWD/root" --force-not-root --force-script-chrootless --no-force-unsafe-io --log=/dev/null "$@"
}

setup() {
    mkdir -p root/var/lib/dpkg/info root/var/lib/dpkg/updates
    touch root/var/lib/dpkg/status
    for version in 1 2; do
        mkdir -p tree/DEBIAN tree/usr/share/weir
        printf 'Package: weir-test\nVersion: %s\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: a test\n' \
            $version >tree/DEBIAN/control
        for file in a b c; do
            seq $version 3000 >tree/usr/share/weir/$file
        done
        dpkg-deb --root-owner-group -b tree $version.deb >/dev/null
        rm -r tree
    done
}

run() {
    for version in 1 2; do
        in_root "$@" -i $version.deb >/dev/null
        echo $version >>"$WEIR_ACK"
    done
}

check() {
    last=$(tail -n 1 "$WEIR_ACKED")
    in_root --configure -a >log 2>&1 || true
    status=$(dpkg-query --admindir=root/var/lib/dpkg -W -f '${db:Status-Abbrev} ${Version}' weir-test 2>/dev/null) || status=
    # What dpkg knows to be in the middle can be installed again.
    case $status in
        "ii "*) ;;
        "") [ -z "$last" ] || { echo "version $last was installed, and nothing is"; exit 1; }; exit 0 ;;
        *) in_root -i 2.deb >log 2>&1 || { cat log; exit 1; }; status="ii 2" ;;
    esac
    version=${status##* }
    [ "$version" -ge "${last:-0}" ] || { echo "version $last was installed, and $version is there"; exit 1; }
    for file in a b c; do
        seq "$version" 3000 | cmp -s - root/usr/share/weir/$file || { echo "version $version is installed, and $file is not its own"; exit 1; }
    done
}

"$@"
