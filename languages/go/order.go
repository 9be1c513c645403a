// Package order orders writes, without waiting for the disk, on a mount of Weir.
//
// Each call says what it has kept: Ordered, or Durable where it was a flush instead. On other filesystems every call is a flush, so a
// program keeps its order everywhere. On an overlay over a mount of Weir it is a flush of the mount's, of which no more than order is
// known: Ordered.
package order

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// Kept is what a call has kept.
type Kept int

const (
	// Ordered: before whatever is written later; it may not be durable for a while.
	Ordered Kept = iota
	// Durable: it survives a power cut.
	Durable
)

func (kept Kept) String() string {
	if kept == Ordered {
		return "ordered"
	}
	return "durable"
}

// The ioctls _IO('W', 1), 2 and 11 of crates/capi/include/weir.h, and _IOW('W', 10, struct weir_group).
const (
	fbarrier     = 0x5701
	fdatabarrier = 0x5702
	orderAll     = 0x570B
	syncGroup    = 0x43F8570A
)

// A struct weir_group of one file, which is to be durable: it has no others.
type group struct {
	mode, others uint32
	inodes       [126]uint64
}

// SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE and _WAIT_AFTER.
const writeAndWait = 7

// The types of a mount through FUSE and of an overlay, in fstatfs.
const (
	fuseMagic    = 0x65735546
	overlayMagic = 0x794C7630
)

// An attribute of every file of a mount of Weir; sync makes all of the mount durable.
var (
	status = [...]byte{'u', 's', 'e', 'r', '.', 'w', 'e', 'i', 'r', '.', 's', 't', 'a', 't', 'u', 's', 0}
	sync   = [...]byte{'s', 'y', 'n', 'c'}
)

// XATTR_REPLACE: a filesystem without the attribute does not get it.
const replace = 2

// The number of syncfs, which the package syscall does not name.
var syncfs = map[string]uintptr{"386": 344, "amd64": 306, "arm": 373, "arm64": 267, "riscv64": 267}

// Order puts all that was written to the file, its attributes and its name before whatever is written later. Errors are those of Sync.
// Call msync before, where the file is mapped.
func Order(file *os.File) (Kept, error) {
	return call(file, fbarrier, file.Sync)
}

// OrderData does the same of the file's content and of what is needed to find it. Elsewhere it is fdatasync.
func OrderData(file *os.File) (Kept, error) {
	return call(file, fdatabarrier, func() error {
		return control(file, func(descriptor uintptr) error { return syscall.Fdatasync(int(descriptor)) })
	})
}

// MakeDurable returns when all that was written to the file survives a power cut, also on a mount of Weir where Sync only orders
// (--sync order, or the file's attribute), and on an overlay over it; there all of the mount is made durable, for which the caller has
// to have the right to write the file.
func MakeDurable(file *os.File) error {
	onFuse := false
	err := control(file, func(descriptor uintptr) error {
		kind, err := kindOf(descriptor)
		onFuse = kind == fuseMagic
		if !onFuse || err != nil {
			return err
		}
		// The kernel passes on what it keeps of the file: mappings change it without a call.
		err = syscall.SyncFileRange(int(descriptor), 0, 0, writeAndWait)
		if isUnknown(err) || errors.Is(err, syscall.ESPIPE) {
			return nil
		}
		return os.NewSyscallError("sync_file_range", err)
	})
	if err != nil {
		return err
	}
	if !onFuse {
		if err := file.Sync(); err != nil {
			return err
		}
		return control(file, syncBelow)
	}
	_, err = call(file, syncGroup, file.Sync)
	return err
}

// OrderTree puts all that was changed on the filesystem of a file or directory, by any program, before whatever is changed later.
// Elsewhere it is syncfs, whose errors it returns. On another mount through FUSE, and on one of a server of Weir that is older than
// this call, it fails with EOPNOTSUPP: the kernel does not pass syncfs on to its server. So it does on an overlay over a mount of Weir:
// name the mount.
func OrderTree(directory *os.File) (Kept, error) {
	// Elsewhere this is all; on a mount of Weir the kernel begins to hand over what it keeps of files, and the next call waits for it.
	err := control(directory, func(descriptor uintptr) error {
		number, known := syncfs[runtime.GOARCH]
		if !known {
			return os.NewSyscallError("syncfs", syscall.ENOSYS)
		}
		if _, _, errno := syscall.Syscall(number, descriptor, 0, 0); errno != 0 {
			return os.NewSyscallError("syncfs", errno)
		}
		return nil
	})
	if err != nil {
		return Durable, err
	}
	return call(directory, orderAll, func() error {
		return control(directory, func(descriptor uintptr) error {
			kind, err := kindOf(descriptor)
			if err != nil {
				return err
			}
			isAbove, err := isAboveWeir(descriptor)
			if kind == fuseMagic || isAbove {
				return os.NewSyscallError("ioctl", syscall.EOPNOTSUPP)
			}
			return err
		})
	})
}

// kindOf tells the type of the filesystem that a file is on.
func kindOf(descriptor uintptr) (uint32, error) {
	var found syscall.Statfs_t
	if err := syscall.Fstatfs(int(descriptor), &found); err != nil {
		return 0, os.NewSyscallError("fstatfs", err)
	}
	return uint32(found.Type), nil
}

// isAboveWeir tells whether a file is on an overlay that has it on a mount of Weir.
func isAboveWeir(descriptor uintptr) (bool, error) {
	kind, err := kindOf(descriptor)
	if kind != overlayMagic || err != nil {
		return false, err
	}
	name := uintptr(unsafe.Pointer(&status))
	_, _, errno := syscall.Syscall6(syscall.SYS_FGETXATTR, descriptor, name, 0, 0, 0, 0)
	if errno == 0 {
		return true, nil
	}
	if errno == syscall.ENODATA || isUnknown(errno) {
		return false, nil
	}
	return false, os.NewSyscallError("fgetxattr", errno)
}

// syncBelow makes all durable that is on the mount of Weir below an overlay, where there is one.
func syncBelow(descriptor uintptr) error {
	isAbove, err := isAboveWeir(descriptor)
	if !isAbove || err != nil {
		return err
	}
	name, value := uintptr(unsafe.Pointer(&status)), uintptr(unsafe.Pointer(&sync))
	_, _, errno := syscall.Syscall6(syscall.SYS_FSETXATTR, descriptor, name, value, uintptr(len(sync)), replace, 0)
	if errno != 0 {
		return os.NewSyscallError("fsetxattr", errno)
	}
	return nil
}

// isUnknown tells what filesystems answer that do not know the call.
func isUnknown(err error) bool {
	for _, unknown := range []syscall.Errno{syscall.ENOTTY, syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP} {
		if errors.Is(err, unknown) {
			return true
		}
	}
	return false
}

// call makes one of the requests, of which syncGroup reads a group and the others nothing.
func call(file *os.File, request uintptr, flush func() error) (Kept, error) {
	alone := group{}
	err := control(file, func(descriptor uintptr) error {
		for {
			_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, descriptor, request, uintptr(unsafe.Pointer(&alone)))
			if errno == 0 {
				return nil
			}
			if errno != syscall.EINTR {
				return os.NewSyscallError("ioctl", errno)
			}
		}
	})
	if !isUnknown(err) {
		return Ordered, err
	}
	if err := flush(); err != nil {
		return Durable, err
	}
	kept := Durable
	err = control(file, func(descriptor uintptr) error {
		isAbove, err := isAboveWeir(descriptor)
		if isAbove {
			kept = Ordered
		}
		return err
	})
	return kept, err
}

// control runs a call on the descriptor of a file, which stays open meanwhile.
func control(file *os.File, run func(uintptr) error) error {
	connection, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var outcome error
	if err := connection.Control(func(descriptor uintptr) { outcome = run(descriptor) }); err != nil {
		return err
	}
	return outcome
}
