//! Virtual stress testing of order-preserving firmware: a trace drives an emulated device, the power is cut at random
//! events, and what recovery leaves is compared with a golden disk.
//!
//! `vst --images N [--flush-every M] [--trace FILE] --seed S [--json]`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use weir_crash::{SECTOR_BYTES, Vst, VstRequest};
use weir_workload::{BlockTrace, TraceKind};

/// Requests of a trace that are replayed at most; the rest of the file is not read.
const REQUESTS_MAX: usize = 2_000_000;

/// Drives order-preserving firmware by a trace, cuts the power, and compares with a golden disk.
#[derive(Parser)]
struct Arguments {
    /// Crash images to judge.
    #[arg(long, default_value_t = 2_400)]
    images: u64,
    /// Flush after so many writes; without it only where the trace does.
    #[arg(long)]
    flush_every: Option<u64>,
    /// A block trace: a CSV file of the MSR traces, the text of blkparse, or an iolog of fio. Default: random writes.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Determines everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON document on standard output, instead of a line.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let trace = arguments.trace.as_deref().map(read).transpose()?.unwrap_or_default();
    let flush_every = arguments.flush_every;
    let summary = Vst { flush_every, trace, ..Vst::new(arguments.images, arguments.seed) }.run_test();
    if arguments.json {
        println!("{:#}", serde_json::to_value(&summary)?);
    } else {
        println!(
            "{} images after {} requests and {} flushes, {} with requests dropped ({} at most); violations: {}; trace \
             hash {}",
            summary.images,
            summary.requests,
            summary.flushes,
            summary.images_rolled_back,
            summary.most_dropped,
            summary.violations,
            summary.trace_hash
        );
    }
    if let Some(violation) = &summary.first_violation {
        eprintln!("{violation}");
    }
    Ok(if summary.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The requests of a trace that change something, and its flushes.
fn read(file: &Path) -> Result<Vec<VstRequest>, Box<dyn Error>> {
    let named = |error: &dyn Error| format!("{}: {error}", file.display());
    let text = BufReader::new(File::open(file).map_err(|error| named(&error))?);
    let mut requests = Vec::new();
    for request in BlockTrace::new(text) {
        let request = request.map_err(|error| named(&error))?;
        let sector = request.offset / SECTOR_BYTES as u64;
        let sectors = request.bytes.div_ceil(SECTOR_BYTES as u64);
        if request.preflush {
            requests.push(VstRequest::Flush);
        }
        match request.kind {
            TraceKind::Write => requests.push(VstRequest::Write { sector, sectors }),
            TraceKind::Discard => requests.push(VstRequest::Discard { sector, sectors }),
            TraceKind::Flush => requests.push(VstRequest::Flush),
            TraceKind::Read => {}
        }
        if request.fua {
            requests.push(VstRequest::Flush);
        }
        if requests.len() >= REQUESTS_MAX {
            break;
        }
    }
    if !requests.iter().any(|request| *request != VstRequest::Flush) {
        return Err(format!("{}: no request of the trace changes anything", file.display()).into());
    }
    Ok(requests)
}
