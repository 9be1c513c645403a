// goleveldb under power cuts: what was written with Sync is there, and the database can be opened.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/opt"
)

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func key(number int) []byte { return []byte(fmt.Sprintf("key %d", number)) }

func value(number int) string { return strings.Repeat(fmt.Sprintf("%d ", number), 300) }

func setup() {
	database, err := leveldb.OpenFile("data", nil)
	must(err)
	must(database.Close())
}

func run() {
	for number := 1; number <= 4; number++ {
		database, err := leveldb.OpenFile("data", nil)
		must(err)
		must(database.Put(key(number), []byte(value(number)), &opt.WriteOptions{Sync: true}))
		lines, err := os.OpenFile(os.Getenv("WEIR_ACK"), os.O_APPEND|os.O_WRONLY, 0)
		must(err)
		fmt.Fprintln(lines, number)
		lines.Close()
		must(database.Close())
	}
}

func check() {
	lines, err := os.ReadFile(os.Getenv("WEIR_ACKED"))
	must(err)
	promised := len(strings.Fields(string(lines)))
	database, err := leveldb.OpenFile("data", nil)
	must(err)
	for number := 1; number <= promised; number++ {
		found, err := database.Get(key(number), nil)
		if err != nil || string(found) != value(number) {
			fmt.Printf("key %d of %d: %v\n", number, promised, err)
			os.Exit(1)
		}
	}
}

func main() {
	map[string]func(){"setup": setup, "run": run, "check": check}[os.Args[1]]()
}
