//! What a trip to a FUSE server takes, by the way in which the server is asked:
//! `cargo run --release -p weir-bench --example trips -- [--rounds N] [--ms N] [--awake]`, as root.
//!
//! The server does nothing: it answers each request at once, out of memory. It is a process of its own, on a mount of its
//! own. Clients are threads that make one call after the other. All ways have a turn in each round. `taskset -c 1` puts all
//! on one core; `chrt -f 10` lets other programs disturb less, though they keep cores from falling asleep. FUSE over io_uring
//! takes a kernel that offers it, with `/sys/module/fuse/parameters/enable_uring` set to Y; without, its ways are left out.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "it measures other processes")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program says what it found, and why it fails"
)]

mod answers;
mod calls;
mod device;
mod queues;
mod served;
mod way;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use weir_bench::{Load, Machine, Spread, Usage};
use weir_runtime::{CpuLatencyGuard, Runtime, Wall};

use calls::Call;
use served::{Served, serve};
use way::Way;

/// Clients at one time.
const CLIENTS: [usize; 2] = [1, 4];

/// What one way took for one call, by rounds.
struct Cell {
    way: Way,
    call: Call,
    clients: usize,
    /// Calls a second.
    rates: Vec<f64>,
    /// The server's processor time a call, in microseconds.
    server_micros: Vec<f64>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ended = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", way, mountpoint] => serve(way, mountpoint.as_ref()),
        _ => measure(&arguments),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The number behind an option.
fn number(arguments: &[String], option: &str, default: u64) -> Result<u64, Box<dyn Error>> {
    let given = arguments.iter().position(|argument| argument == option);
    let value =
        given.map(|at| arguments.get(at + 1).ok_or(format!("{option} takes a number"))).transpose()?;
    Ok(value.map(|value| value.parse()).transpose()?.unwrap_or(default))
}

fn measure(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let rounds = number(arguments, "--rounds", 5)?;
    let turn = Duration::from_millis(number(arguments, "--ms", 100)?);
    let awake = arguments.iter().any(|argument| argument == "--awake");
    let _awake = awake.then(CpuLatencyGuard::new).transpose()?;
    let runtime = Runtime::wall(Wall::default())?;
    let handle = runtime.handle();
    let mut cells: Vec<Cell> = Vec::new();
    let mut usage = Usage::default();
    let mut ways: Vec<Way> = Way::all().filter(|way| !way.uses_queues() || queues::are_offered()).collect();
    for _ in 0..rounds {
        for &way in &ways {
            let load = Load::now(&handle);
            let served = Served::start(way)?;
            for (call, clients) in Call::ALL.iter().flat_map(|call| CLIENTS.map(|clients| (*call, clients))) {
                call.run(&served, clients, turn / 5)?;
                let (rate, server) = call.run(&served, clients, turn)?;
                let known =
                    cells.iter_mut().find(|cell| (cell.way, cell.call, cell.clients) == (way, call, clients));
                if let Some(cell) = known {
                    cell.rates.push(rate);
                    cell.server_micros.push(server);
                } else {
                    let (rates, server_micros) = (vec![rate], vec![server]);
                    cells.push(Cell { way, call, clients, rates, server_micros });
                }
            }
            served.end()?;
            usage.add(load.until_now(&handle));
        }
        ways.reverse();
    }
    println!("{}", Machine::seen(usage).line());
    for (call, clients) in Call::ALL.iter().flat_map(|call| CLIENTS.map(|clients| (*call, clients))) {
        println!(
            "\n| {}, {clients} at a time | us a trip | x as fast | spread | server's us |\n|---|---|---|---|---|",
            call.title()
        );
        let of =
            |way| cells.iter().find(move |cell| (cell.way, cell.call, cell.clients) == (way, call, clients));
        for cell in Way::all().filter_map(of) {
            print_row(cell, of(Way::TODAY));
        }
    }
    Ok(())
}

fn print_row(cell: &Cell, today: Option<&Cell>) {
    let Some(rate) = Spread::of(cell.rates.iter().copied()) else { return };
    let Some(server) = Spread::of(cell.server_micros.iter().copied()) else { return };
    let Some(ratio) = today.and_then(|today| Spread::of_ratios(&cell.rates, &today.rates)) else { return };
    println!(
        "| {} | {:.1} | {:.2} | {:.2} to {:.2} | {:.1} |",
        cell.way.title(),
        1e6 / rate.median,
        ratio.median,
        ratio.min,
        ratio.max,
        server.median,
    );
}
