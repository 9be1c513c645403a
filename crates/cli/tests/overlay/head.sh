# The lines before each case of cases.sh. $1: the directory with the lower layer, which is made if it is missing; $2: the
# directory for the upper layer; $3: further options of the overlay. The case runs in the merged directory, in a mount
# namespace of its own.

set -u
umask 022
export LC_ALL=C
lower=$1 upper=$2/upper work=$2/work merged=$2/merged options=$3
mkdir -p "$upper" "$work" "$merged"

prepare_lower() {
    mkdir "$lower" && cd "$lower" || exit 99
    echo content > file
    echo other > other
    echo kept > read-only; chmod 444 read-only
    echo hidden > secret; chmod 600 secret
    echo shared > shared; chmod 666 shared
    echo owned > owned; chown 1000:1000 owned
    echo program > set-id; chmod 6777 set-id
    printf '#!/bin/sh\necho runs\n' > script; chmod 755 script
    mkdir directory directory/sub empty private sticky
    echo a > directory/a; echo b > directory/b; echo c > directory/sub/c
    echo p > private/p; chmod 700 private
    chmod 1777 sticky; echo s > sticky/s
    ln -s file link; ln -s nowhere dangling; ln -s directory link-to-directory
    mkfifo fifo; mknod null c 1 3; mknod block b 7 200
    python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
    echo linked > hard1; ln hard1 hard2
    truncate -s 20M sparse
    printf begin | dd of=sparse conv=notrunc status=none
    printf middle | dd of=sparse bs=1M seek=10 conv=notrunc status=none
    printf end | dd of=sparse bs=1 seek=20971517 conv=notrunc status=none
    echo x > attributes; setfattr -n user.one -v 1 attributes; setfattr -n trusted.two -v 2 attributes
    echo x > listed; setfacl -m u:1000:rw,g:33:r listed
    mkdir inherited; setfacl -d -m u:1000:rwx inherited
    mkdir many; (cd many && seq -f 'n%03g' 1 300 | xargs touch)
    find . -exec touch -h -d '2001-02-03 04:05:06.123456789' {} +
}

mount_overlay() {
    # shellcheck disable=SC2086
    mount -t overlay overlay -o "lowerdir=$lower,upperdir=$upper,workdir=$work${options:+,$options}" "$merged" || exit 99
    cd "$merged" || exit 99
}

# Mounts the same layers anew, with other options where they are given.
remount() {
    cd / && umount "$merged" || exit 99
    [ $# = 0 ] || options=$1
    mount_overlay
}

# Everything below a directory, but for what lies in the way of comparison: inode numbers, times, and a directory's size.
show() {
    (
        cd "${1:-.}" || exit
        find . -printf '%p %M %n %U %G %s %l\n' | sed -E 's/^([^ ]+ d[^ ]+ [0-9]+ [0-9]+ [0-9]+) [0-9]+/\1/' | grep -v -E '^\./many/n' | sort
        find . -type c -o -type b | sort | xargs -r stat -c '%n %t,%T'
        find . -type f ! -name sparse ! -path './many/*' | sort | xargs -r md5sum
    )
}

# The upper directory as the kernel keeps it: whiteouts are devices 0,0, attributes are the overlay's own. Values that hold file
# handles are left out.
show_upper() {
    show "$upper"
    (
        cd "$upper" || exit
        find . | sort | xargs -r getfattr -h -d -m - -e hex 2>&1 | grep -v '^$' |
            sed -E 's/(overlay\.(origin|upper|uuid|protattr))=.*/\1/'
    )
}

# Attributes of files: all that calls tell, but for inode numbers and times of change.
facts() { stat -c '%n %F %a %h %u %g %s %t,%T %Y' "$@" 2>&1; }

# Lines of `facts` without the time, where that is now.
undated() { sed 's/ [0-9]*$//'; }

as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups sh -c "$1" 2>&1; echo "status $?"; }

# A program in Python, with what programs of several cases need.
run_python() {
    python3 -c '
import ctypes, errno, fcntl, mmap, os, socket, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
def rename2(old, new, flags):
    done = libc.renameat2(-100, old.encode(), -100, new.encode(), flags)
    print("rename", old, new, flags, "ok" if done == 0 else os.strerror(ctypes.get_errno()))
def attempt(call, *arguments, **named):
    try: print(call.__name__, call(*arguments, **named))
    except OSError as error: print(call.__name__, error.strerror)
'"$1"
    local status=$?
    [ $status = 0 ] || echo "status $status"
}

[ -e "$lower" ] || prepare_lower
mount_overlay
exec 2>&1
