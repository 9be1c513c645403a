//! The test of a program: what a file says, and what the command line says instead.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use regex_lite::Regex;
use serde::Deserialize;
use serde::de::Error as _;
use weir_fuse::absolute;
use weir_program::{
    CutPoint, CutPointError, DiskGround, Fault, FaultError, Promises, RunDisk, RunPlan, TraceHeader,
    fit_drive,
};

use super::ground::GroundArguments;
use super::{CheckArguments, ProgramArguments, load_drive, name_for_trace, this_program};
use crate::error::CliError;
use crate::size::Size;

/// Bytes that a program may write, if nothing was said.
const RECORD_BYTES: u64 = 2 << 30;

/// The keys of a file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TestFile {
    setup: Option<String>,
    run: Option<String>,
    check: Option<String>,
    promises: Option<String>,
    drive: Option<String>,
    states: Option<u64>,
    time: Option<u64>,
    seed: Option<u64>,
    jobs: Option<u64>,
    check_limit: Option<u64>,
    run_limit: Option<u64>,
    ack_pattern: Option<String>,
    cut_at: Option<String>,
    cuts: Option<u64>,
    ground: Option<String>,
    mount_options: Option<String>,
    disk_size: Option<String>,
    sector_bytes: Option<u64>,
    #[serde(default)]
    fault: Vec<FaultEntry>,
}

/// A fault as a text, or as a table.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a fault is a text such as 'fsync:2', or a table with call, nth, lasts and path"
)]
enum FaultEntry {
    Text(String),
    #[serde(rename_all = "kebab-case")]
    Table {
        call: String,
        nth: Option<u64>,
        #[serde(default)]
        lasts: bool,
        path: Option<String>,
    },
}

impl FaultEntry {
    /// The fault, by its text.
    fn to_fault(&self) -> Result<Fault, FaultError> {
        match self {
            FaultEntry::Text(text) => text.parse(),
            FaultEntry::Table { call, nth, lasts, path } => {
                let nth =
                    nth.map_or_else(String::new, |nth| format!(":{nth}{}", if *lasts { "+" } else { "" }));
                let path = path.as_ref().map_or_else(String::new, |path| format!(":{path}"));
                format!("{call}{nth}{path}").parse()
            }
        }
    }
}

impl TestFile {
    fn read(path: &Path) -> Result<TestFile, CliError> {
        let failed = |source| CliError::File { doing: "read", path: path.to_owned(), source };
        let wrong = |source| CliError::ProgramFile { path: path.to_owned(), source };
        let file: TestFile = toml::from_str(&fs::read_to_string(path).map_err(failed)?).map_err(wrong)?;
        if file.jobs.is_some_and(|jobs| !(1..=256).contains(&jobs)) {
            return Err(wrong(toml::de::Error::custom("jobs is 1 to 256")));
        }
        Ok(file)
    }
}

/// A test of a program.
pub(super) struct Test {
    setup: Option<String>,
    run: String,
    check: String,
    ack_pattern: Option<Regex>,
    faults: Vec<Fault>,
    pub(super) cut_at: Option<CutPoint>,
    /// How often the power is cut while it runs; none if states are made of the record.
    pub(super) cuts: Option<u64>,
    /// The disk whose filesystem it works on; none if it works on the recording mount itself.
    pub(super) disk: Option<DiskGround>,
    run_limit: u64,
    record_bytes: u64,
    here: PathBuf,
    promises: Promises,
    pub(super) seed: u64,
    pub(super) checks: CheckArguments,
}

impl Test {
    pub(super) fn from_arguments(arguments: &ProgramArguments) -> Result<Test, CliError> {
        let path = arguments.file.as_deref();
        let file = path.map_or_else(|| Ok(TestFile::default()), TestFile::read)?;
        let wrong = |what: String| CliError::ProgramFile {
            path: path.unwrap_or(Path::new("")).to_owned(),
            source: toml::de::Error::custom(what),
        };
        let named = |name: &String| {
            let known = Promises::ALL.map(Promises::name).join(", ");
            Promises::from_name(name).ok_or_else(|| wrong(format!("promises is one of {known}")))
        };
        let pattern =
            |pattern: &String| Regex::new(pattern).map_err(|error| wrong(format!("ack-pattern: {error}")));
        let of_file = (
            file.promises.as_ref().map(named).transpose()?,
            file.ack_pattern.as_ref().map(pattern).transpose()?,
        );
        let faults: Result<Vec<Fault>, FaultError> = file.fault.iter().map(FaultEntry::to_fault).collect();
        let faults = faults.map_err(|error| wrong(error.to_string()))?;
        let cut_at = file
            .cut_at
            .as_ref()
            .map(|text| text.parse().map_err(|error: CutPointError| wrong(error.to_string())));
        let cut_at = arguments.cut_at.clone().or(cut_at.transpose()?);
        let cuts = arguments.cuts.or(file.cuts).or(cut_at.as_ref().map(|_| 1));
        let ground = GroundArguments::from_file(
            file.ground.as_deref(),
            file.mount_options.clone(),
            file.disk_size.as_deref(),
            file.sector_bytes,
        );
        let ground = ground.ok_or_else(|| {
            wrong(
                "ground is mount, ext4, xfs, btrfs, barrierfs or f2fs, and disk-size a size such as 256M"
                    .to_owned(),
            )
        })?;
        let disk = arguments.ground.disk(&ground)?;
        let mut checks = arguments.checks.clone();
        if disk.is_some() && checks.promises.is_some() {
            return Err(CliError::Usage("--promises goes with --ground mount: a disk makes its own"));
        }
        // A test that says both is run on either ground.
        checks.promises = checks.promises.or(of_file.0.filter(|_| disk.is_none()));
        if let (None, Some(name)) = (&checks.drive, &file.drive) {
            checks.drive = Some(load_drive(name)?);
        }
        if let Some(drive) = &checks.drive {
            fit_drive(drive, disk.as_ref())?;
        }
        // A limit on the command line takes the place of both in the file.
        if checks.states.is_none() && checks.time.is_none() {
            (checks.states, checks.time) = (file.states, file.time);
        }
        checks.seed = checks.seed.or(file.seed);
        checks.jobs = checks.jobs.or(file.jobs);
        checks.check_limit = checks.check_limit.or(file.check_limit);
        let missing = "a test has --run and --check, or a file with the keys run and check";
        // The parent of a bare name is an empty path.
        let here = path.and_then(Path::parent).filter(|parent| !parent.as_os_str().is_empty());
        let here = absolute(here.unwrap_or(Path::new(".")));
        Ok(Test {
            setup: arguments.setup.clone().or(file.setup),
            run: arguments.run.clone().or(file.run).ok_or(CliError::Usage(missing))?,
            check: checks.check.clone().or(file.check).ok_or(CliError::Usage(missing))?,
            ack_pattern: arguments.ack_pattern.clone().or(of_file.1),
            cut_at,
            cuts,
            disk,
            faults: if arguments.fault.is_empty() { faults } else { arguments.fault.clone() },
            run_limit: arguments.run_limit.or(file.run_limit).unwrap_or(600),
            record_bytes: arguments.record_bytes.map_or(RECORD_BYTES, |Size(bytes)| bytes),
            here,
            promises: checks.promises.unwrap_or_default(),
            seed: checks.seed.unwrap_or(1),
            checks,
        })
    }

    pub(super) fn run_plan(&self, scratch: &Path, stops: &Arc<AtomicBool>) -> RunPlan {
        RunPlan {
            setup: self.setup.clone(),
            run: self.run.clone(),
            limit: Duration::from_secs(self.run_limit),
            data_max: self.record_bytes,
            ack_pattern: self.ack_pattern.clone(),
            faults: self.faults.clone(),
            disk: self.disk.clone().map(|ground| RunDisk { ground, weir: this_program() }),
            scratch: scratch.to_owned(),
            here: self.here.clone(),
            stops: Arc::clone(stops),
            cut: None,
            base: None,
            round: 0,
        }
    }

    pub(super) fn header(&self) -> TraceHeader {
        TraceHeader {
            run: self.run.clone(),
            check: self.check.clone(),
            promises: self.promises.name().to_owned(),
            seed: self.seed,
            here: self.here.clone(),
            drive: self.checks.drive.as_ref().map(name_for_trace),
        }
    }
}
