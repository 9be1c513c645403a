//! Key-value stores in Rust under power cuts: what they have answered for is there, and they can be opened.
//!
//! rust_stores STORE setup|run|check.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::{env, process};

use redb::ReadableDatabase;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A store that is open; `put` returns when the value is durable.
struct Store {
    put: Box<dyn Fn(&str, &str) -> Result<()>>,
    get: Box<dyn Fn(&str) -> Result<Option<String>>>,
}

fn open_fjall() -> Result<Store> {
    let database = fjall::Database::builder("data/store").open()?;
    let numbers = database.keyspace("numbers", fjall::KeyspaceCreateOptions::default)?;
    let found = numbers.clone();
    Ok(Store {
        put: Box::new(move |key, value| {
            numbers.insert(key, value)?;
            Ok(database.persist(fjall::PersistMode::SyncAll)?)
        }),
        get: Box::new(move |key| {
            Ok(found.get(key)?.map(|value| String::from_utf8_lossy(&value).into_owned()))
        }),
    })
}

fn open_jammdb() -> Result<Store> {
    let database = jammdb::DB::open("data/file")?;
    let found = database.clone();
    Ok(Store {
        put: Box::new(move |key, value| {
            let batch = database.tx(true)?;
            batch.get_or_create_bucket("numbers")?.put(key.to_string(), value.to_string())?;
            Ok(batch.commit()?)
        }),
        get: Box::new(move |key| {
            let batch = found.tx(false)?;
            let numbers = batch.get_bucket("numbers")?;
            Ok(numbers.get_kv(key).map(|pair| String::from_utf8_lossy(pair.value()).into_owned()))
        }),
    })
}

fn open_persy() -> Result<Store> {
    let create = |database: &persy::Persy| -> std::result::Result<(), Box<dyn Error>> {
        let mut batch = database.begin()?;
        batch.create_index::<String, String>("numbers", persy::ValueMode::Replace)?;
        batch.prepare()?.commit()?;
        Ok(())
    };
    let database = persy::Persy::open_or_create_with("data/file", persy::Config::new(), create)?;
    let found = database.clone();
    Ok(Store {
        put: Box::new(move |key, value| {
            let mut batch = database.begin()?;
            batch.put::<String, String>("numbers", key.to_string(), value.to_string())?;
            Ok(batch.prepare()?.commit()?)
        }),
        get: Box::new(move |key| Ok(found.get::<String, String>("numbers", &key.to_string())?.next())),
    })
}

fn open_redb() -> Result<Store> {
    const NUMBERS: redb::TableDefinition<&str, &str> = redb::TableDefinition::new("numbers");
    let database = std::sync::Arc::new(redb::Database::create("data/file")?);
    let found = database.clone();
    Ok(Store {
        put: Box::new(move |key, value| {
            let batch = database.begin_write()?;
            batch.open_table(NUMBERS)?.insert(key, value)?;
            Ok(batch.commit()?)
        }),
        get: Box::new(move |key| {
            let table = found.begin_read()?.open_table(NUMBERS)?;
            Ok(table.get(key)?.map(|value| value.value().to_string()))
        }),
    })
}

fn open_sled() -> Result<Store> {
    let database = sled::open("data/store")?;
    let found = database.clone();
    Ok(Store {
        put: Box::new(move |key, value| {
            database.insert(key, value)?;
            database.flush()?;
            Ok(())
        }),
        get: Box::new(move |key| {
            Ok(found.get(key)?.map(|value| String::from_utf8_lossy(&value).into_owned()))
        }),
    })
}

fn key(number: usize) -> String {
    format!("key {number}")
}

fn value(number: usize) -> String {
    format!("{number} ").repeat(300)
}

fn run(open: fn() -> Result<Store>) -> Result<()> {
    for first in [1, 5, 9] {
        let store = open()?;
        for number in first..first + 4 {
            (store.put)(&key(number), &value(number))?;
            let mut lines = OpenOptions::new().append(true).open(env::var("WEIR_ACK")?)?;
            lines.write_all(format!("{number}\n").as_bytes())?;
        }
    }
    Ok(())
}

fn check(open: fn() -> Result<Store>) -> Result<()> {
    let promised = fs::read_to_string(env::var("WEIR_ACKED")?)?.lines().count();
    let store = open()?;
    for number in 1..=promised {
        if (store.get)(&key(number))? != Some(value(number)) {
            return Err(format!("key {number} of {promised} is lost").into());
        }
    }
    Ok(())
}

fn setup(open: fn() -> Result<Store>) -> Result<()> {
    fs::create_dir_all("data")?;
    open().map(drop)
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let open = match arguments[1].as_str() {
        "fjall" => open_fjall,
        "jammdb" => open_jammdb,
        "persy" => open_persy,
        "redb" => open_redb,
        _ => open_sled,
    };
    let command = match arguments[2].as_str() {
        "setup" => setup,
        "run" => run,
        _ => check,
    };
    if let Err(error) = command(open) {
        println!("{error}");
        process::exit(1);
    }
}
