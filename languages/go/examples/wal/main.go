// A write-ahead log that orders: wal write DIRECTORY writes until it is killed; wal check DIRECTORY NUMBER looks at what is left.
//
// A record of the log is ordered before the place in the table that it is about. Every hundredth is made durable, and told.
package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"time"

	order "weir.example/order"
)

const recordBytes = 512 // a number, the checksum of its bytes, and zeros

func record(number uint64) []byte {
	content := make([]byte, recordBytes)
	binary.LittleEndian.PutUint64(content, number)
	binary.LittleEndian.PutUint32(content[8:], crc32.ChecksumIEEE(content[:8]))
	return content
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func write(log, table *os.File) {
	must(order.Order(log))
	fmt.Println(must(order.Order(table)))
	for number := uint64(1); ; number++ {
		must(log.WriteAt(record(number), int64(number-1)*recordBytes))
		must(order.OrderData(log))
		must(table.WriteAt(record(number)[:8], 0))
		if number%100 == 0 {
			must(0, order.MakeDurable(table))
			fmt.Println(number)
		}
	}
}

func check(log, table *os.File, durable uint64) {
	whole, found := uint64(0), make([]byte, recordBytes)
	for {
		if _, err := log.ReadAt(found, int64(whole)*recordBytes); err != nil || !bytes.Equal(found, record(whole+1)) {
			break
		}
		whole++
	}
	place := make([]byte, 8)
	table.ReadAt(place, 0) // An empty table is at 0.
	if number := binary.LittleEndian.Uint64(place); number < durable || number > whole {
		fmt.Fprintf(os.Stderr, "the log has %d records, the table is at %d, and %d were durable\n", whole, number, durable)
		os.Exit(1)
	}
}

// measure writes and orders in place for a second: how, and calls a second.
func measure(log *os.File) {
	kept, calls := must(order.Order(log)), uint64(0)
	for end := time.Now().Add(time.Second); time.Now().Before(end); calls++ {
		must(log.WriteAt(record(calls), 0))
		must(order.OrderData(log))
	}
	fmt.Printf("%v: %d\n", kept, calls)
}

func main() {
	if len(os.Args) < 3 || os.Args[1] == "check" && len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: wal write|measure|tree DIRECTORY, or wal check DIRECTORY NUMBER")
		os.Exit(2)
	}
	if os.Args[1] == "tree" {
		fmt.Println(must(order.OrderTree(must(os.Open(os.Args[2])))))
		return
	}
	open := func(name string) *os.File {
		return must(os.OpenFile(filepath.Join(os.Args[2], name), os.O_RDWR|os.O_CREATE, 0o644))
	}
	switch log, table := open("log"), open("table"); os.Args[1] {
	case "write":
		write(log, table)
	case "measure":
		measure(log)
	default:
		check(log, table, must(strconv.ParseUint(os.Args[3], 10, 64)))
	}
}
