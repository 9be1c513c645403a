# What is done to the merged directory of an overlay, each case between two lines with `##`. A line `# options:` names
# options of the overlay. The functions are in head.sh.

## nothing is changed
show; show_upper
## create
echo new > new; mkdir made; echo in > made/in; echo in > directory/new; show; show_upper
## create exclusively
run_python '
for name in ["file", "fresh", "dangling", "directory", "link"]:
    attempt(os.open, name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
'; show_upper
## create and truncate
run_python '
for name in ["file", "fresh", "dangling", "link", "directory", "read-only"]:
    attempt(os.close, os.open(name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)) if name != "directory" else attempt(os.open, name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
'; show; show_upper
## open without writing copies nothing
run_python '
for flags in [os.O_RDONLY, os.O_RDONLY | os.O_APPEND, os.O_PATH, os.O_RDONLY | os.O_NOATIME, os.O_RDONLY | os.O_DIRECT]:
    f = os.open("file", flags); os.close(f)
'; show_upper
## open for writing copies
run_python '
for name, flags in [("file", os.O_WRONLY), ("other", os.O_RDWR), ("owned", os.O_WRONLY | os.O_APPEND), ("secret", os.O_RDONLY | os.O_TRUNC)]:
    f = os.open(name, flags); print(os.fstat(f).st_size, os.stat(name).st_size); os.close(f)
'; show_upper
## append
echo more >> file; echo more >> link; cat file; facts file | undated; show_upper
## write into the middle
printf X | dd of=directory/a conv=notrunc status=none; cat directory/a; show_upper
## truncate
truncate -s 3 file; truncate -s 100000 other; truncate -s 0 owned; cat file; md5sum other; facts file other owned | undated; show_upper
## truncate fails
truncate -s 3 directory; truncate -c -s 3 nowhere; ls nowhere; show_upper
## unlink
rm -f file directory/a; ls; cat file; show; show_upper
## unlink what is not there
rm file; rm file; rmdir file; rmdir directory; rm directory; ls; show_upper
## make over a whiteout
rm file; echo again > file; cat file; facts file | undated; rm file; mkdir file; touch file/in; show; show_upper
## a link over a whiteout
rm file other; ln -s script file; ln owned other; cat file other; show_upper
## nodes over a whiteout
rm fifo null file; mknod fifo c 1 3; mkfifo null; mknod file c 0 0; ls; show_upper
## rmdir of what the lower layer has
rmdir directory; rm -r directory; ls -d directory; rmdir empty; show; show_upper
## an opaque directory
rm -r directory; mkdir directory; ls directory; echo mine > directory/mine; ls directory; remount; ls directory; show_upper
## an opaque directory with the same names
rm -r directory; mkdir -p directory/sub; echo new > directory/b; show directory; remount; show directory; show_upper
## a whiteout in a directory that is removed
rm directory/a directory/b; rm -r directory/sub; rmdir directory; ls -d directory; show_upper; mkdir directory; ls directory
## rename a file
mv file moved; mv directory/a .; cat moved a; ls file directory; show; show_upper
## rename over a file
mv file other; cat other; mv read-only directory/b; echo new > new; mv new owned; cat owned; show; show_upper
## rename over a new file
echo new > new; mv file new; cat new; show_upper
## rename of a linked file over its other name
run_python '
os.rename("hard1", "hard2"); print(os.path.exists("hard1"), os.path.exists("hard2"))'; facts hard2
## rename a directory of the lower layer
# options: redirect_dir=off
mv directory there; run_python 'attempt(os.rename, "empty", "there2"); attempt(os.rename, "directory", "there3")'; show; show_upper
## rename a directory with redirections
# options: redirect_dir=on
mv directory there; mv empty other-empty; echo x > there/x; rm there/a; show; show_upper; remount; show
## rename a directory twice and back
# options: redirect_dir=on
mv directory one; mkdir deep; mv one deep/two; mv deep/two directory; show; show_upper; remount; show
## make a directory where one was renamed
# options: redirect_dir=on
mv directory there; mkdir directory; echo n > directory/n; mv there/sub directory/sub2; show; show_upper; remount; show
## rename a directory over an empty one
# options: redirect_dir=on
mkdir new; run_python 'attempt(os.rename, "directory", "new"); attempt(os.rename, "new", "empty"); attempt(os.rename, "private", "empty")'; show; show_upper
## rename a new directory
mkdir -p new/in; echo x > new/in/x; mv new newer; mv newer directory/; show; show_upper
## rename fails
run_python '
attempt(os.rename, "file", "directory"); attempt(os.rename, "directory/sub", "file"); attempt(os.rename, "nowhere", "x")
attempt(os.rename, "file", "file"); attempt(os.rename, "directory", "directory/sub/x")'; show_upper
## rename without replacing
run_python 'rename2("file", "other", 1); rename2("file", "fresh", 1); os.unlink("other"); rename2("fresh", "other", 1)'; show; show_upper
## exchange files
run_python 'rename2("file", "other", 2); rename2("file", "nowhere", 2); open("new", "w").write("n"); rename2("new", "script", 2)'; cat file other new; show_upper
## exchange a file and a directory
# options: redirect_dir=on
run_python 'os.mkdir("new"); rename2("file", "new", 2); rename2("directory", "other", 2)'; show; show_upper; remount; show
## exchange directories
# options: redirect_dir=on
run_python 'rename2("directory", "private", 2)'; show; show_upper; remount; show
## a whiteout that a program asks for
run_python 'rename2("file", "fresh", 4)'; ls; show_upper
## link a file of the lower layer
ln file second; echo more >> second; cat file second; facts file second | undated; show_upper
## link a new file
echo new > new; ln new second; ln second third; rm second; cat third; facts new third | undated; show_upper
## link fails
ln directory x; ln file other; ln nowhere x; ln -P dangling second; ls -l second | wc -l; show_upper
## linked files of the lower layer without an index
# options: index=off
echo more >> hard1; cat hard1 hard2; facts hard1 hard2 | undated; rm hard2; facts hard1 | undated; show_upper
## linked files of the lower layer with an index
# options: index=on
echo more >> hard1; cat hard1 hard2; facts hard1 hard2 | undated; ln hard2 hard3; facts hard3 | undated; show_upper
## an index after the overlay is mounted anew
# options: index=on
echo more >> hard1; remount; cat hard1 hard2; chmod 600 hard2; facts hard1 hard2 | undated
## exports by handles
# options: index=on,nfs_export=on
echo more >> file; rm other; mkdir new; show; remount; show
## symbolic links
readlink link dangling link-to-directory; cat link; echo via > dangling; cat nowhere; ls link-to-directory/; ln -sf other link; readlink link; touch -h -d @5 dangling; facts dangling; show_upper
## symbolic links into a directory of the lower layer
echo x > link-to-directory/x; rm link-to-directory/a; rm link-to-directory; ls directory; show_upper
## special files
echo hi > null; (echo through > fifo & cat fifo; wait); mkfifo f; mknod n c 1 5; mknod b b 7 201; run_python 'socket.socket(socket.AF_UNIX).bind("s")'; chmod 600 fifo null block socket; rm block; show; show_upper
## a socket of the lower layer
run_python '
s = socket.socket(socket.AF_UNIX); attempt(s.connect, "socket"); s.close()
s = socket.socket(socket.AF_UNIX); s.bind("mine"); s.listen(1)
c = socket.socket(socket.AF_UNIX); c.connect("mine"); c.send(b"x"); print(s.accept()[0].recv(1))'; show_upper
## chmod
chmod 640 file; chmod 700 directory; chmod 4755 script; facts file directory script | undated; cat file; ls directory; show_upper
## chown
chown 1000:33 file directory set-id link; chown -h 5:6 dangling; facts file directory set-id dangling; show_upper
## times
touch -d @1000000000.25 file directory; touch -h -d @7 link; stat -c '%n %x %y' file directory link; facts other; echo x >> other; stat -c %Y owned; chmod 600 owned; stat -c '%n %y' owned; show_upper
## a directory's time of change
stat -c %Y directory; touch directory/x; run_python 'print(os.stat("directory").st_mtime > 1e9)'; touch -d @9 directory; chmod 700 directory/sub; stat -c '%n %Y' directory; show_upper
## extended attributes
getfattr -d -m - attributes; setfattr -n user.three -v 3 attributes; setfattr -x user.one attributes; setfattr -n user.d -v d directory; getfattr -d -m - attributes directory; setfattr -n trusted.overlay.x -v y attributes; setfattr -x user.none attributes; show_upper
## extended attributes are copied
echo more >> attributes; getfattr -d -m - attributes; mv attributes moved; getfattr -d -m - moved; show_upper
## large attributes
run_python '
os.setxattr("file", "user.large", b"v" * 3000); print(len(os.getxattr("file", "user.large")))
attempt(os.setxattr, "file", "user.huge", b"v" * 65000)
attempt(os.setxattr, "file", "user.large", b"v", os.XATTR_CREATE); attempt(os.setxattr, "file", "user.none", b"v", os.XATTR_REPLACE)
print(os.listxattr("file"))'
## access control lists
getfacl -n listed; echo more >> listed; getfacl -n listed; setfacl -m u:7:r file; setfacl -b listed; getfacl -n file listed; show_upper
## lists that are inherited
touch inherited/f; mkdir inherited/d; getfacl -n inherited inherited/f inherited/d; setfacl -d -m u:8:r directory; mkdir directory/d; getfacl -n directory/d; setfacl -k inherited; touch inherited/g; getfacl -n inherited inherited/g; show_upper
## capabilities
setcap cap_chown=ep script; getcap script; setcap cap_chown=ep file; echo x >> file; getcap file; getfattr -d -m security.capability script; show_upper
## lists decide
# The overlay copies the mode that the kernel's FUSE has of the upper file, which a list does not bring up to date there; a
# change of the file's attributes does.
setfacl -m u:65534:- shared; as_nobody 'cat shared; echo x >> shared'; setfacl -m u:65534:rw secret; touch secret; as_nobody 'cat secret; echo x >> secret'; show_upper
## copy-up of a sparse file
echo tail >> sparse; facts sparse | undated; md5sum sparse; run_python '
f = os.open("sparse", os.O_RDONLY); print(os.stat("sparse").st_blocks < 1000)
print(os.lseek(f, 0, os.SEEK_HOLE) <= 65536, 9 << 20 < os.lseek(f, 1 << 20, os.SEEK_DATA) <= 10 << 20)'
## copy-up of a file cut short
truncate -s 12M sparse; md5sum sparse; truncate -s 20M sparse; md5sum sparse; facts sparse | undated
## metadata alone is copied
# options: metacopy=on,redirect_dir=on
chmod 600 sparse; facts sparse; mv file moved; chown 1:2 moved; md5sum sparse moved; show_upper; remount; md5sum sparse moved; echo x >> moved; show_upper; cat moved
## metadata alone and links
# options: metacopy=on,redirect_dir=on,index=on
chmod 600 hard1; cat hard1 hard2; echo x >> hard2; cat hard1; facts hard1 hard2 | undated; show_upper
## a mapping before the copy-up
run_python '
f = os.open("file", os.O_RDONLY); m = mmap.mmap(f, 8, prot=mmap.PROT_READ)
w = os.open("file", os.O_RDWR); n = mmap.mmap(w, 8)
n[0:3] = b"CON"; n.flush(); os.pwrite(w, b"T", 3)
print(m[:], n[:], os.pread(f, 20, 0), os.pread(w, 20, 0))'; cat file; show_upper
## a private mapping
run_python '
f = os.open("file", os.O_RDONLY); m = mmap.mmap(f, 8, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
m[0:3] = b"CON"; print(m[:], os.pread(f, 20, 0))'; show_upper
## a mapping of a large file
run_python '
w = os.open("sparse", os.O_RDWR); m = mmap.mmap(w, 20 << 20)
m[5 << 20:(5 << 20) + 4] = b"page"; m[19 << 20:(19 << 20) + 4] = b"page"; m.flush(); m.close()'; md5sum sparse
## a descriptor from before the copy-up
run_python '
f = os.open("file", os.O_RDONLY); open("file", "a").write("more\n")
print(os.pread(f, 20, 0), os.fstat(f).st_size, os.stat("file").st_size); os.fchmod(f, 0o600); print(oct(os.stat("file").st_mode))'; show_upper
## unlink while open
run_python '
for name in ["file", "new"]:
    f = os.open(name, os.O_RDWR | os.O_CREAT); os.unlink(name)
    os.write(f, b"after"); print(os.pread(f, 20, 0), os.fstat(f).st_nlink, os.path.exists(name))
r = os.open("other", os.O_RDONLY); os.unlink("other"); print(os.read(r, 20), os.fstat(r).st_nlink)
os.fchmod(r, 0o600); print(oct(os.fstat(r).st_mode))'; show; show_upper
## replaced while open
run_python '
f = os.open("file", os.O_RDONLY); open("new", "w").write("new"); os.rename("new", "file")
print(os.read(f, 20), open("file").read()); g = os.open("other", os.O_RDWR); os.rename("file", "other"); os.write(g, b"x"); print(open("other").read(), os.pread(g, 20, 0))'; show_upper
## a file without a name
run_python '
f = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o640); os.write(f, b"first"); print(os.fstat(f).st_nlink)
print(libc.linkat(-100, b"/proc/self/fd/%d" % f, -100, b"named", 0x400)); print(os.fstat(f).st_nlink)
g = os.open("directory", os.O_TMPFILE | os.O_WRONLY); os.close(g)'; facts named | undated; show_upper
## a working directory that is removed
mkdir d; cd d; rmdir ../d; ls; touch x; cd ..; cd directory/sub; rm -r ../../directory; ls; touch x; stat -c %h .; cd "$merged"; show_upper
## listing while names are removed
run_python '
seen = set()
with os.scandir("many") as entries:
    for entry in entries:
        seen.add(entry.name); os.unlink("many/" + entry.name)
print(len(seen), os.listdir("many"))'; find "$upper/many" -type c | wc -l; rmdir many; ls many
## listing while names are made
run_python '
with os.scandir("many") as entries:
    names = [next(entries).name]
    for n in range(300): open("many/new%d" % n, "w").close()
    names += [entry.name for entry in entries]
print(len([name for name in names if not name.startswith("new")]), len(set(names)) == len(names), len(os.listdir("many")))'
## listing from a position
run_python '
readdir = lambda path: sorted(os.listdir(path))
f = os.open("many", os.O_RDONLY | os.O_DIRECTORY); a = os.listdir(f); os.lseek(f, 0, 0); os.unlink("many/n007"); os.mkdir("many/d")
b = os.listdir(f); print(len(a), len(b), sorted(set(a) ^ set(b)))'; ls many | wc -l
## kinds in a listing
run_python '
rm = [os.unlink(name) for name in ["other", "dangling"]]; os.mkdir("other"); os.mkfifo("dangling")
for entry in sorted(os.scandir("."), key=lambda entry: entry.name):
    print(entry.name, entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False), entry.is_symlink(), entry.inode() == os.lstat(entry.name).st_ino)'
## numbers of inodes stay
run_python '
before = {n: os.lstat(n).st_ino for n in ["file", "directory", "link", "hard1"]}
open("file", "a").write("x"); os.chmod("directory", 0o700); os.rename("link", "link2"); os.rename("link2", "link"); os.chmod("hard1", 0o600)
print([n for n in before if before[n] != os.lstat(n).st_ino])'
## move between directories
mv directory/a private/; mv file directory/; mv directory/sub/c .; mkdir new; mv new directory/; mv directory/sub private/; show; show_upper
## copies
cp -a directory copy; cp -a hard1 hard2 sparse many copy/; cp -r directory/. empty; show; md5sum copy/sparse
## a tree is replaced
mkdir next; cp -r directory/. next; rm -r directory; mv next directory; show directory; show_upper; remount; show directory
## reserve space
fallocate -l 100000 file; facts file | undated; fallocate -n -l 100000 other; facts other | undated; fallocate -p -o 0 -l 4096 sparse; fallocate -z -o 8192 -l 4096 sparse; md5sum file sparse; fallocate -p -o 0 -l 10 nowhere; ls nowhere; show_upper
## numbers of the filesystem
stat -f -c '%T %s %S %l' .; run_python 's = os.statvfs("."); print(s.f_namemax, s.f_bsize, s.f_frsize, s.f_bavail <= s.f_bfree <= s.f_blocks, s.f_flag)'; df -h . > /dev/null; echo $?
## names
n=$(printf 'n%.0s' $(seq 255)); touch "$n"; touch "${n}n"; mv "$n" "a b
c"; ls; rm a*; show_upper
## another user
as_nobody 'cat secret'; as_nobody 'echo x > file'; as_nobody 'echo x >> shared'; as_nobody 'rm file'; as_nobody 'ls private'; as_nobody 'touch new'; as_nobody 'chmod 600 shared'; show_upper
## another user in a directory for all
as_nobody 'cd sticky; touch mine; mkdir dir; echo x > dir/x; rm s; mv s t; mv mine yours; ln -s x l; rm -r dir'; show sticky; show_upper
## another user copies up
chown 65534 directory directory/* owned; as_nobody 'rm directory/a; echo x >> directory/b; mv directory/b directory/d; chmod 600 owned; touch -d @5 owned; setfattr -n user.x -v y owned'; facts owned; show_upper
## rights of set-id files
facts set-id; as_nobody 'echo x >> set-id'; facts set-id | undated; echo y >> set-id; chmod 6755 set-id; echo z >> set-id; facts set-id | undated; chown 7 set-id; facts set-id | undated; show_upper
## directories that give their group
chmod 2777 directory; chgrp 33 directory; mkdir directory/d; touch directory/f; as_nobody 'mkdir directory/e; touch directory/g'; show directory
## a program runs and is replaced
./script; ./script & wait; cp script new; mv new script; ./script; cp /bin/sleep s
./s 60 & until [ "$(cat /proc/$!/comm)" = s ]; do sleep 0.01; done
run_python 'attempt(os.open, "s", os.O_WRONLY)'; kill -PIPE $!; wait; rm s
## locks
run_python '
a = os.open("file", os.O_RDWR); b = os.open("file", os.O_RDWR); fcntl.flock(a, fcntl.LOCK_EX)
attempt(fcntl.flock, b, fcntl.LOCK_EX | fcntl.LOCK_NB)
fcntl.flock(a, fcntl.LOCK_UN); fcntl.lockf(a, fcntl.LOCK_EX)
if os.fork() == 0: attempt(fcntl.lockf, b, fcntl.LOCK_EX | fcntl.LOCK_NB); sys.stdout.flush(); os._exit(0)
os.wait()'
## attributes of users
# options: userxattr
echo x >> file; rm -r directory; mkdir directory; rm other; mv script moved; show; show_upper; remount; show
## attributes of users and renamed directories
# options: userxattr
run_python 'attempt(os.rename, "directory", "there")'; mv private there; show; show_upper
## without synchronising
# options: volatile
echo x >> file; rm other; sync -f .; run_python 'f = os.open("file", os.O_RDWR); attempt(os.fsync, f); attempt(os.fdatasync, f)'; show; find "$work" -path '*/incompat/*' -printf '%f\n'; cd /; umount "$merged"; mount -t overlay overlay -o "lowerdir=$lower,upperdir=$upper,workdir=$work" "$merged" 2>/dev/null; echo $?; ls -A "$upper"
## synchronising
echo x >> file; run_python 'f = os.open("file", os.O_RDWR | os.O_SYNC); os.write(f, b"y"); attempt(os.fsync, f); d = os.open("directory", os.O_RDONLY); attempt(os.fsync, d)'; sync; sync -f file; cat file
## the layers are mounted anew
echo x >> file; rm other; mv directory/a b; mkdir empty/d; ln owned second; rm -r sticky; mkdir sticky; show > /tmp/before.$$; remount; show | diff /tmp/before.$$ -; rm /tmp/before.$$; show_upper
## the layers are mounted for reading
echo x >> file; rm other; cd /; umount "$merged"; mount -t overlay overlay -o "lowerdir=$upper:$lower" "$merged"; cd "$merged"; show; touch file; rm owned
## two lower layers
echo x >> file; rm other; rm -r directory; mkdir directory; echo z > directory/z; cd /; umount "$merged"; mkdir "$2/u2" "$2/w2"; mount -t overlay overlay -o "lowerdir=$upper:$lower,upperdir=$2/u2,workdir=$2/w2" "$merged"; cd "$merged"; show; echo y >> file; echo new > other; rm directory/z; touch directory/y; show; (upper=$2/u2; show_upper)
## all is removed
rm -r ./* ; ls -A; rmdir ./*; find "$upper" -type c | wc -l; remount; ls -A
## watches
run_python '
i = libc.inotify_init1(0x800); assert libc.inotify_add_watch(i, b".", 0x3c6) >= 0
open("new", "w").close(); os.unlink("file"); os.rename("other", "o2")
data = os.read(i, 4096); at = 0; seen = []
while at < len(data):
    size = int.from_bytes(data[at+12:at+16], "little"); seen.append((int.from_bytes(data[at+4:at+8], "little"), data[at+16:at+16+size].rstrip(b"\0"))); at += 16 + size
print([event for event in seen if event[1] in (b"new", b"file", b"other", b"o2")])'
## copies between files
run_python '
a = os.open("file", os.O_RDONLY); b = os.open("other", os.O_RDWR); n = os.open("new", os.O_RDWR | os.O_CREAT)
print(os.copy_file_range(a, b, 100, 0, 0), os.pread(b, 100, 0)); print(os.sendfile(n, a, 0, 100), os.pread(n, 100, 0))
print(os.copy_file_range(a, n, 100, 0, 4), os.pread(n, 100, 0))'; cp --reflink=always file clone; cp --reflink=auto file clone; cat clone; show_upper
## direct reads and writes
run_python '
m = mmap.mmap(-1, 4096); m[:] = b"d" * 4096
f = os.open("sparse", os.O_RDWR | os.O_DIRECT); print(os.pwritev(f, [m], 8192), os.preadv(f, [m], 0), m[:6])'; md5sum sparse
## handles
# options: index=on,nfs_export=on
run_python '
class Handle(ctypes.Structure): _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
m = ctypes.c_int(); root = os.open(".", os.O_RDONLY); handles = {}
open("new", "w").write("new"); open("other", "a").write("more")
for name in ["file", "other", "new", "directory", "directory/a", "hard1"]:
    h = handles[name] = Handle(128); done = libc.name_to_handle_at(-100, name.encode(), ctypes.byref(h), ctypes.byref(m), 0)
    if done: print(name, os.strerror(ctypes.get_errno()))
open("file", "a").write("later"); os.rename("new", "newer"); open("/proc/sys/vm/drop_caches", "w").write("2")
for name, h in handles.items():
    f = libc.open_by_handle_at(root, ctypes.byref(h), os.O_RDONLY)
    print(name, oct(os.fstat(f).st_mode) if f >= 0 else os.strerror(ctypes.get_errno()), os.read(f, 99) if f >= 0 and stat.S_ISREG(os.fstat(f).st_mode) else "")'
## an overlay of a user in a namespace
cd /; umount "$merged"; rmdir "$upper" "$merged"; rm -rf "$work"; mkdir "$upper" "$work" "$merged"; chown 65534:65534 "$upper" "$work" "$merged"
as_nobody "unshare -Urm sh -c '
mount -t overlay overlay -o lowerdir=$lower,upperdir=$upper,workdir=$work,userxattr $merged && cd $merged || exit
id -u; cat file secret; echo x >> shared; echo x >> file; echo new > new; rm new other; rm -r sticky; mkdir made; mv made there; ls -lan shared there
chmod 600 shared; ln -s a b; ls; rm b; touch sticky'"; show_upper
