// The part of etcd that saves a database that came from another member, under power cuts: it is there when it was saved.
package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.uber.org/zap"
)

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func content(number int) []byte { return bytes.Repeat([]byte{byte(number)}, 10000) }

func run() {
	snapshots := snap.New(zap.NewNop(), "snap")
	for number := 1; number <= 3; number++ {
		_, err := snapshots.SaveDBFrom(bytes.NewReader(content(number)), uint64(number))
		must(err)
		lines, err := os.OpenFile(os.Getenv("WEIR_ACK"), os.O_APPEND|os.O_WRONLY, 0)
		must(err)
		fmt.Fprintln(lines, number)
		lines.Close()
	}
}

func check() {
	lines, err := os.ReadFile(os.Getenv("WEIR_ACKED"))
	must(err)
	promised := len(strings.Fields(string(lines)))
	snapshots := snap.New(zap.NewNop(), "snap")
	for number := 1; number <= promised; number++ {
		path, err := snapshots.DBFilePath(uint64(number))
		must(err)
		found, err := os.ReadFile(path)
		must(err)
		if !bytes.Equal(found, content(number)) {
			fmt.Printf("database %d of %d is not whole\n", number, promised)
			os.Exit(1)
		}
	}
}

func main() {
	map[string]func(){"run": run, "check": check}[os.Args[1]]()
}
