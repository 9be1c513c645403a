//! A ledger in redb, a commit a number: `redb-ordered write|check|measure DIRECTORY [NUMBER]`.

mod ordered_file;

use std::error::Error;
use std::fs::OpenOptions;
use std::path::Path;
use std::time::{Duration, Instant};

use redb::{Database, Durability, ReadableTable as _, TableDefinition};
use weir_order::order_data;

use ordered_file::OrderedFile;

type Outcome<T> = Result<T, Box<dyn Error>>;

const USAGE: &str = "redb-ordered write|check|measure DIRECTORY [NUMBER]";

/// Each number, and its square.
const LEDGER: TableDefinition<u64, u64> = TableDefinition::new("ledger");

fn open_database(file: OrderedFile) -> Outcome<Database> {
    let mut builder = Database::builder();
    builder.set_cache_size(64 << 20);
    Ok(builder.create_with_backend(file)?)
}

fn commit(database: &Database, number: u64, durability: Durability) -> Outcome<()> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(durability);
    transaction.open_table(LEDGER)?.insert(number, number * number)?;
    Ok(transaction.commit()?)
}

/// Every hundredth commit is durable, and told.
fn write(database: &Database) -> Outcome<()> {
    for number in 1.. {
        if number % 100 == 0 {
            commit(database, number, Durability::Immediate)?;
            println!("{number}");
        } else {
            commit(database, number, Durability::Eventual)?;
        }
    }
    Ok(())
}

/// The first numbers are there, all of them that were durable, and no other.
fn check(database: &Database, durable: u64) -> Outcome<()> {
    let transaction = database.begin_read()?;
    let mut whole = 0;
    for entry in transaction.open_table(LEDGER)?.iter()? {
        let (number, square) = entry?;
        if (number.value(), square.value()) != (whole + 1, (whole + 1) * (whole + 1)) {
            break;
        }
        whole += 1;
    }
    let found = transaction.open_table(LEDGER)?.iter()?.count() as u64;
    if found == whole && whole >= durable {
        return Ok(());
    }
    Err(format!(
        "the ledger has {found} numbers, the first {whole} without a gap, and {durable} were durable"
    )
    .into())
}

/// Commits a second, ordered and durable.
fn measure(database: &Database) -> Outcome<()> {
    let mut number = 0;
    for (way, durability) in [("ordered", Durability::Eventual), ("durable", Durability::Immediate)] {
        // What was only ordered before is none of the measured commits' cost.
        commit(database, number, Durability::Immediate)?;
        let (first, began) = (number, Instant::now());
        while began.elapsed() < Duration::from_secs(2) {
            number += 1;
            commit(database, number, durability)?;
        }
        let commits = number - first;
        println!("{way}: {:.0}", commits as f64 / began.elapsed().as_secs_f64());
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, command, directory, rest @ ..] = &arguments[..] else {
        return Err(USAGE.into());
    };
    let path = Path::new(directory).join("ledger.redb");
    let begins = match command.as_str() {
        "write" | "measure" => true,
        "check" => false,
        _ => return Err(USAGE.into()),
    };
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let locked = OrderedFile::lock(file.try_clone()?)?;
    if begins {
        file.set_len(0)?;
    }
    if command == "write" {
        println!("{}", format!("{:?}", order_data(&file)?).to_lowercase());
    }
    let database = open_database(locked)?;
    match command.as_str() {
        "write" => write(&database),
        "measure" => measure(&database),
        _ => check(&database, rest.first().map_or(Ok(0), |number| number.parse())?),
    }
}
