package main

import (
	"os"

	"github.com/ncruces/go-sqlite3/vfs"
	order "weir.example/order"
)

// orderedVFS is the engine's own file layer, with syncs that only order unless durable is set.
type orderedVFS struct {
	vfs.VFSFilename
	durable bool
}

// OpenFilename opens a file as the engine does, and once more for the calls that order.
func (layer *orderedVFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	file, flags, err := layer.VFSFilename.OpenFilename(name, flags)
	if err != nil || flags&(vfs.OPEN_MAIN_DB|vfs.OPEN_MAIN_JOURNAL) == 0 {
		return file, flags, err
	}
	opened, err := os.Open(name.String())
	if err != nil {
		file.Close()
		return nil, flags, err
	}
	return &orderedFile{File: file, layer: layer, opened: opened}, flags, nil
}

// orderedFile is a database or its rollback journal.
type orderedFile struct {
	vfs.File
	layer  *orderedVFS
	opened *os.File
	// hasName says that the file's name is ordered.
	hasName bool
}

// Sync puts all writes before this call before all that come later. With durable set they survive a power cut when it returns.
func (file *orderedFile) Sync(flags vfs.SyncFlag) error {
	if file.layer.durable {
		return file.File.Sync(flags)
	}
	call := order.OrderData
	if !file.hasName {
		call = order.Order
	}
	_, err := call(file.opened)
	file.hasName = file.hasName || err == nil
	return err
}

// DeviceCharacteristics leaves out the atomic writes of F2FS, whose calls do not pass through this layer.
func (file *orderedFile) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return file.File.DeviceCharacteristics() &^ vfs.IOCAP_BATCH_ATOMIC
}

func (file *orderedFile) Close() error {
	file.opened.Close()
	return file.File.Close()
}
