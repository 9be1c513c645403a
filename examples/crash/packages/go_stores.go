// Key-value stores in Go under power cuts: what they have answered for is there, and they can be opened.
//
// go_stores STORE setup|run|check.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/dgraph-io/badger/v4"
	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/tidwall/buntdb"
	"go.etcd.io/bbolt"
)

// A store that is open; put returns when the value is durable.
type store struct {
	put   func(key, value string) error
	get   func(key string) (string, error)
	close func() error
}

func openBadger() (*store, error) {
	database, err := badger.Open(badger.DefaultOptions("data").WithSyncWrites(true).WithLoggingLevel(badger.ERROR).
		WithMemTableSize(1 << 20).WithValueThreshold(64 << 10).WithValueLogFileSize(1 << 20).WithNumVersionsToKeep(1))
	return &store{
		put: func(key, value string) error {
			return database.Update(func(batch *badger.Txn) error { return batch.Set([]byte(key), []byte(value)) })
		},
		get: func(key string) (value string, err error) {
			err = database.View(func(batch *badger.Txn) error {
				item, err := batch.Get([]byte(key))
				if err != nil {
					return err
				}
				return item.Value(func(found []byte) error { value = string(found); return nil })
			})
			return
		},
		close: func() error { return database.Close() },
	}, err
}

func openBbolt() (*store, error) {
	name := []byte("numbers")
	database, err := bbolt.Open("data/file", 0o600, nil)
	if err == nil {
		err = database.Update(func(batch *bbolt.Tx) error { _, err := batch.CreateBucketIfNotExists(name); return err })
	}
	return &store{
		put: func(key, value string) error {
			return database.Update(func(batch *bbolt.Tx) error { return batch.Bucket(name).Put([]byte(key), []byte(value)) })
		},
		get: func(key string) (value string, err error) {
			err = database.View(func(batch *bbolt.Tx) error { value = string(batch.Bucket(name).Get([]byte(key))); return nil })
			return
		},
		close: func() error { return database.Close() },
	}, err
}

func openBuntdb() (*store, error) {
	database, err := buntdb.Open("data/file")
	if err == nil {
		err = database.SetConfig(buntdb.Config{SyncPolicy: buntdb.Always, AutoShrinkDisabled: true})
	}
	return &store{
		put: func(key, value string) error {
			return database.Update(func(batch *buntdb.Tx) error { _, _, err := batch.Set(key, value, nil); return err })
		},
		get: func(key string) (value string, err error) {
			err = database.View(func(batch *buntdb.Tx) error { value, err = batch.Get(key); return err })
			return
		},
		close: func() error {
			if err := database.Shrink(); err != nil {
				return err
			}
			return database.Close()
		},
	}, err
}

func openGoleveldb() (*store, error) {
	database, err := leveldb.OpenFile("data", nil)
	return &store{
		put: func(key, value string) error {
			return database.Put([]byte(key), []byte(value), &opt.WriteOptions{Sync: true})
		},
		get: func(key string) (string, error) {
			value, err := database.Get([]byte(key), nil)
			return string(value), err
		},
		close: func() error { return database.Close() },
	}, err
}

func openPebble() (*store, error) {
	database, err := pebble.Open("data", &pebble.Options{Logger: quiet{}})
	return &store{
		put: func(key, value string) error { return database.Set([]byte(key), []byte(value), pebble.Sync) },
		get: func(key string) (string, error) {
			value, closer, err := database.Get([]byte(key))
			if err != nil {
				return "", err
			}
			defer closer.Close()
			return string(value), nil
		},
		close: func() error {
			if err := database.Flush(); err != nil {
				return err
			}
			return database.Close()
		},
	}, err
}

type quiet struct{}

func (quiet) Infof(string, ...interface{})  {}
func (quiet) Errorf(string, ...interface{}) {}
func (quiet) Fatalf(format string, values ...interface{}) {
	fmt.Printf(format+"\n", values...)
	os.Exit(1)
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func key(number int) string { return fmt.Sprintf("key %d", number) }

func value(number int) string { return strings.Repeat(fmt.Sprintf("%d ", number), 300) }

func setup(open func() (*store, error)) {
	must(os.MkdirAll("data", 0o755))
	opened, err := open()
	must(err)
	must(opened.close())
}

func run(open func() (*store, error)) {
	number := 0
	for range 3 {
		opened, err := open()
		must(err)
		for range 4 {
			number++
			must(opened.put(key(number), value(number)))
			lines, err := os.OpenFile(os.Getenv("WEIR_ACK"), os.O_APPEND|os.O_WRONLY, 0)
			must(err)
			fmt.Fprintln(lines, number)
			lines.Close()
		}
		must(opened.close())
	}
}

func check(open func() (*store, error)) {
	lines, err := os.ReadFile(os.Getenv("WEIR_ACKED"))
	must(err)
	promised := len(strings.Fields(string(lines)))
	opened, err := open()
	must(err)
	for number := 1; number <= promised; number++ {
		found, err := opened.get(key(number))
		if err != nil || found != value(number) {
			fmt.Printf("key %d of %d: %v\n", number, promised, err)
			os.Exit(1)
		}
	}
}

func main() {
	stores := map[string]func() (*store, error){
		"badger": openBadger, "bbolt": openBbolt, "buntdb": openBuntdb, "goleveldb": openGoleveldb, "pebble": openPebble,
	}
	map[string]func(func() (*store, error)){"setup": setup, "run": run, "check": check}[os.Args[2]](stores[os.Args[1]])
}
