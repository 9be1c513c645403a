// A ledger in SQLite, a commit a number: go-sqlite-ordered write|check|measure DIRECTORY [NUMBER].
package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
	order "weir.example/order"
)

const usage = "go-sqlite-ordered write|check|measure DIRECTORY [NUMBER]"

// ledger holds each number, and its square.
type ledger struct {
	connection *sqlite3.Conn
	insert     *sqlite3.Stmt
	layer      *orderedVFS
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func openConnection(path string) (*sqlite3.Conn, *orderedVFS) {
	layer := &orderedVFS{VFSFilename: vfs.Find("").(vfs.VFSFilename)}
	vfs.Register("weir", layer)
	address := url.URL{Scheme: "file", Path: must(filepath.Abs(path)), RawQuery: "vfs=weir"}
	return must(sqlite3.Open(address.String())), layer
}

func createLedger(path string) ledger {
	for _, name := range []string{path, path + "-journal"} {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			must(0, err)
		}
	}
	connection, layer := openConnection(path)
	must(0, connection.Exec("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = PERSIST; CREATE TABLE ledger(number INTEGER PRIMARY KEY, square INTEGER)"))
	insert, _, err := connection.Prepare("INSERT INTO ledger VALUES (?, ?)")
	return ledger{connection, must(insert, err), layer}
}

// commit adds a number in a transaction of its own.
func (book ledger) commit(number int64, durable bool) {
	book.layer.durable = durable
	must(0, book.insert.BindInt64(1, number))
	must(0, book.insert.BindInt64(2, number*number))
	must(0, book.insert.Exec())
}

// write makes every hundredth commit durable, and tells it.
func write(path string) {
	book := createLedger(path)
	fmt.Println(must(order.OrderData(must(os.Open(path)))))
	for number := int64(1); ; number++ {
		book.commit(number, number%100 == 0)
		if number%100 == 0 {
			fmt.Println(number)
		}
	}
}

// check looks whether the first numbers are there, all of them that were durable, and no other.
func check(path string, durable int64) {
	connection, _ := openConnection(path)
	rows, _, err := connection.Prepare("SELECT number, square FROM ledger ORDER BY number")
	must(rows, err)
	whole, found := int64(0), int64(0)
	for ; rows.Step(); found++ {
		if number := rows.ColumnInt64(0); number == whole+1 && rows.ColumnInt64(1) == number*number {
			whole++
		}
	}
	must(0, rows.Err())
	if found != whole || whole < durable {
		fmt.Fprintf(os.Stderr, "the ledger has %d numbers, the first %d without a gap, and %d were durable\n", found, whole, durable)
		os.Exit(1)
	}
}

// measure tells commits a second, ordered and durable.
func measure(path string) {
	for _, way := range []string{"ordered", "durable"} {
		book, commits := createLedger(path), int64(0)
		// What was only ordered before is none of the measured commits' cost.
		book.commit(0, true)
		began := time.Now()
		for time.Since(began) < 2*time.Second {
			commits++
			book.commit(commits, way == "durable")
		}
		fmt.Printf("%s: %.0f\n", way, float64(commits)/time.Since(began).Seconds())
		must(0, book.insert.Close())
		must(0, book.connection.Close())
	}
}

func main() {
	if len(os.Args) < 3 {
		must(0, fmt.Errorf("%s", usage))
	}
	path := filepath.Join(os.Args[2], "ledger.sqlite")
	switch os.Args[1] {
	case "write":
		write(path)
	case "measure":
		measure(path)
	case "check":
		durable := int64(0)
		if len(os.Args) > 3 {
			durable = must(strconv.ParseInt(os.Args[3], 10, 64))
		}
		check(path, durable)
	default:
		must(0, fmt.Errorf("%s", usage))
	}
}
