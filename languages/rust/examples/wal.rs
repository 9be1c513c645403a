//! A write-ahead log that orders: `wal write DIRECTORY` writes until it is killed; `wal check DIRECTORY NUMBER` looks at what is left.
//!
//! A record of the log is ordered before the place in the table that it is about. Every hundredth is made durable, and told.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use weir_order::{make_durable, order, order_data, order_tree};

/// A number, a checksum of it, and zeros.
const RECORD: usize = 512;

fn record(number: u64) -> [u8; RECORD] {
    let mut content = [0; RECORD];
    content[..8].copy_from_slice(&number.to_le_bytes());
    content[8..12].copy_from_slice(&crc32(&number.to_le_bytes()).to_le_bytes());
    content
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xEDB8_8320 & (sum & 1).wrapping_neg()))
    })
}

fn write(log: &File, table: &File) -> io::Result<()> {
    order(log)?;
    println!("{}", format!("{:?}", order(table)?).to_lowercase());
    for number in 1.. {
        log.write_all_at(&record(number), (number - 1) * RECORD as u64)?;
        order_data(log)?;
        table.write_all_at(&number.to_le_bytes(), 0)?;
        if number % 100 == 0 {
            make_durable(table)?;
            println!("{number}");
        }
    }
    Ok(())
}

fn check(log: &File, table: &File, durable: u64) -> io::Result<()> {
    let (mut found, mut whole) = ([0; RECORD], 0);
    while log.read_exact_at(&mut found, whole * RECORD as u64).is_ok() && found == record(whole + 1) {
        whole += 1;
    }
    let mut place = [0; 8];
    table.read_at(&mut place, 0)?; // An empty table is at 0.
    let number = u64::from_le_bytes(place);
    if (durable..=whole).contains(&number) {
        return Ok(());
    }
    let told = format!("the log has {whole} records, the table is at {number}, and {durable} were durable");
    Err(io::Error::new(io::ErrorKind::InvalidData, told))
}

/// Writes and orders in place for a second: how, and calls a second.
fn measure(log: &File) -> io::Result<()> {
    let kept = format!("{:?}", order(log)?).to_lowercase();
    let (mut calls, began) = (0, Instant::now());
    while began.elapsed() < Duration::from_secs(1) {
        log.write_all_at(&record(calls), 0)?;
        order_data(log)?;
        calls += 1;
    }
    println!("{kept}: {calls}");
    Ok(())
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, command, directory, rest @ ..] = &arguments[..] else {
        eprintln!("usage: wal write|measure|tree DIRECTORY, or wal check DIRECTORY NUMBER");
        std::process::exit(2);
    };
    if command == "tree" {
        println!("{}", format!("{:?}", order_tree(&File::open(directory)?)?).to_lowercase());
        return Ok(());
    }
    let open = |name: &str| {
        OpenOptions::new().read(true).write(true).create(true).open(Path::new(directory).join(name))
    };
    let (log, table) = (open("log")?, open("table")?);
    match command.as_str() {
        "write" => write(&log, &table),
        "measure" => measure(&log),
        _ => check(&log, &table, rest.first().and_then(|number| number.parse().ok()).unwrap_or(0)),
    }
}
