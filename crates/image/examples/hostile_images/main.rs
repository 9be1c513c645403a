//! Images from an attacker, many of them: each is listed, read, copied to the host, mounted and checked.
//!
//! `hostile_images --images N --seed S [--format ext4|f2fs] [--from N] [--only N] [--control] [--json]`
//!
//! Every image is one of two small filesystems of a format after some edits, most of them under good checksums. Its number and
//! the seed decide everything. What must not happen: a panic, a call without end in virtual time, memory without
//! bound, and any change of the host outside of the directory that the copy is told. A *canary*, a few files beside
//! that directory, shows the last. `--control` has a copy that follows links and believes names; the canary has to
//! show it. A run that tells no progress for minutes hangs at the image behind the last that it told.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

mod attack;
mod attack_f2fs;
#[path = "../../../fs/tests/support/hostile.rs"]
mod hostile;

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use attack::Victim;
use attack_f2fs::F2fsVictim;
use clap::{Parser, ValueEnum};
use hostile::{MountImage, Outcome, Scratch, Seed, checked, live_a_little, within_memory};
use rand::SeedableRng as _;
use rand_pcg::Pcg64;
use serde_json::json;
use weir_fs::{FsMutant, MountOptions};
use weir_image::{GetOptions, ImageError, ImageMutant};
use weir_lfs::F2fsOptions;
use weir_runtime::{Runtime, Wall};
use weir_storage::{Image, Rules};

/// Images between two lines of progress.
const TOLD_EVERY: u64 = 10_000;
/// Findings that are told at most; then it ends.
const FINDINGS_MAX: usize = 20;
/// Of so many images, one has a journal to recover.
const CRASHED: u64 = 5;

/// Copies, mounts and checks images that an attacker has made, and looks that nothing else changes.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many images.
    #[arg(long, default_value_t = 10_000)]
    images: u64,
    /// Determines everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Of which format they are.
    #[arg(long, value_enum, default_value_t = Format::Ext4)]
    format: Format,
    /// The number of the first image, to continue a run.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Replay only the image with this number.
    #[arg(long)]
    only: Option<u64>,
    /// Copy without the rules, on images whose names lead to the canary: it has to show that.
    #[arg(long)]
    control: bool,
    /// One JSON document on standard output.
    #[arg(long)]
    json: bool,
}

/// The format of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Ext4,
    F2fs,
}

/// A sound image, and what an attacker does to it.
trait Attack {
    /// The image after some edits of any kind.
    fn attacked(&self, random: &mut Pcg64) -> Image;
    /// The image after an attack on names alone: what it does is known, so that a copy without rules may try it.
    fn trapped(&self, random: &mut Pcg64) -> Image;
}

/// A format, as an attack on it needs it.
struct Target<M> {
    victims: [Box<dyn Attack>; 2],
    mount: M,
    is_clean: fn(&Image) -> bool,
}

/// What became of the images.
#[derive(Debug, Default, serde::Serialize)]
struct Totals {
    images: u64,
    /// The check found nothing wrong.
    clean: u64,
    /// They could not be mounted to be read, so nothing was copied.
    not_read: u64,
    /// All was copied.
    copied: u64,
    /// Some was damaged, told and passed by.
    passed_by: u64,
    /// The path in the image could not be read, or it gave more than it has room for.
    refused: u64,
    /// The host ended the copy.
    ended: u64,
    /// Of those that could not be read: copied after recovery.
    copied_later: u64,
    /// A writable mount was refused, failed, or was unmounted.
    mount_refused: u64,
    mount_failed: u64,
    unmounted: u64,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let scratch = Scratch::new();
    match arguments.format {
        Format::Ext4 => {
            let victims = [Seed::small(), Seed::small_crashed()];
            let victims = victims.map(|seed| Box::new(Victim::new(seed, scratch.path())) as Box<dyn Attack>);
            let mut mount = MountOptions::default();
            if arguments.control {
                mount.rules = Rules::but(Some(FsMutant::TrustsNames));
            }
            let is_clean = |image: &Image| checked(image).is_ok_and(|report| report.is_clean());
            attack(&arguments, scratch, &Target { victims, mount, is_clean })
        }
        Format::F2fs => {
            let victims = [false, true].map(|crashed| Box::new(F2fsVictim::new(crashed)) as Box<dyn Attack>);
            let target = Target { victims, mount: F2fsOptions::default(), is_clean: attack_f2fs::is_clean };
            attack(&arguments, scratch, &target)
        }
    }
}

/// Attacks images of one format.
fn attack<M: MountImage + Copy>(
    arguments: &Arguments,
    scratch: Scratch,
    target: &Target<M>,
) -> Result<ExitCode, Box<dyn Error>> {
    let clock = Runtime::wall(Wall::default())?.handle();
    let (from, end) = match arguments.only {
        Some(only) => (only, only + 1),
        None => (arguments.from, arguments.from.saturating_add(arguments.images)),
    };
    let began = clock.now();
    let mut totals = Totals::default();
    let mut findings = Vec::new();
    let mut scratch = Some(scratch);
    for number in from..end {
        let mut random = Pcg64::seed_from_u64(arguments.seed.wrapping_mul(1 << 40).wrapping_add(number));
        let victim = &target.victims[usize::from(number % CRASHED == CRASHED - 1 && !arguments.control)];
        let image = match arguments.control {
            true => victim.trapped(&mut random),
            false => victim.attacked(&mut random),
        };
        let place = scratch.take().unwrap_or_else(Scratch::new);
        let tried = catch_unwind(AssertUnwindSafe(|| {
            try_one(&image, target, &place, arguments.control, &mut totals)
        }));
        match tried {
            Ok(None) => scratch = Some(place),
            Ok(Some(finding)) => findings.push((number, finding)),
            Err(_) => findings.push((number, "a panic".to_owned())),
        }
        if findings.len() >= FINDINGS_MAX {
            break;
        }
        if (number + 1 - from).is_multiple_of(TOLD_EVERY) {
            within_memory();
            let rate = totals.images as f64 / clock.now().since(began).as_secs_f64();
            eprintln!("up to {number}: {} findings, {rate:.0} images a second", findings.len());
        }
    }
    let seconds = clock.now().since(began).as_secs_f64();
    let rate = (totals.images as f64 / seconds.max(1e-9)).round();
    let mut document = serde_json::to_value(&totals)?;
    document["seed"] = json!(arguments.seed);
    document["images_per_second"] = json!(rate);
    document["findings"] = json!(findings.len());
    for (number, finding) in &findings {
        eprintln!("image {number}: {finding}");
        let format = arguments.format.to_possible_value();
        let format = format.as_ref().map_or("", |format| format.get_name());
        eprintln!("replay: hostile_images --format {format} --seed {} --only {number}", arguments.seed);
    }
    if arguments.json {
        println!("{document:#}");
    } else {
        println!("{totals:?}; findings: {}; {rate} images a second", findings.len());
    }
    let good = findings.is_empty() != arguments.control;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is wrong, if anything.
fn try_one<M: MountImage + Copy>(
    image: &Image,
    target: &Target<M>,
    scratch: &Scratch,
    control: bool,
    totals: &mut Totals,
) -> Option<String> {
    totals.images += 1;
    totals.clean += u64::from((target.is_clean)(image));
    let (mount, mut get) = (target.mount, GetOptions::default());
    if control {
        get.rules = Rules::but(Some(ImageMutant::FollowsLinks));
    }
    let copied = scratch.copy_unjudged(image, mount, get).map(|outcome| outcome.copied);
    let is_read = copied.is_some();
    match copied {
        None => totals.not_read += 1,
        Some(Ok(copied)) if copied.failed == 0 => totals.copied += 1,
        Some(Ok(_)) => totals.passed_by += 1,
        Some(Err(ImageError::Host { .. })) => totals.ended += 1,
        Some(Err(_)) => totals.refused += 1,
    }
    if !scratch.is_untouched() {
        return Some("a copy has left its target".to_owned());
    }
    scratch.clear();
    if control {
        return None;
    }
    let (outcome, left) = live_a_little(image, &mount);
    match outcome {
        Outcome::Refused(_) => totals.mount_refused += 1,
        Outcome::Failed => totals.mount_failed += 1,
        Outcome::Unmounted => totals.unmounted += 1,
    }
    // What had to be recovered first is copied now.
    if let Some(left) = left.filter(|_| !is_read) {
        let copied = scratch.copy_unjudged(&left, mount, get);
        totals.copied_later += u64::from(copied.is_some());
        if !scratch.is_untouched() {
            return Some("a copy of what was recovered has left its target".to_owned());
        }
        scratch.clear();
    }
    None
}
