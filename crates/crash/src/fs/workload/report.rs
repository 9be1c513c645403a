//! A failure described for a person, as the text of a workload: the operations with the power cut between them, what was lost,
//! what was promised, and what was found.

use std::cell::RefCell;
use std::fmt::{self, Display, Write as _};
use std::rc::Rc;

use weir_storage::BLOCK_BYTES;
use weir_vfs::SyncCall;

use super::cut::{CutName, StateName};
use super::found::{Found, FoundKind};
use super::operation::{Operation, is_visible};
use super::parse::Workload;
use super::perform::PlayError;
use super::setup::{Bench, Setup};
use super::sweep::{SETTLES, WorkloadFailure};
use crate::fs::FsGround;
use crate::fs::calls::Outcome;

/// Lines of a list, at most.
const LINES_MAX: usize = 40;

/// What a failing play shows beside the failure itself.
#[derive(Default)]
struct Shown {
    /// What is there when no power is lost.
    whole: Option<Found>,
    /// What is there after the power cut.
    left: Option<Found>,
    /// The operations that found no space, from 0.
    no_space: Vec<usize>,
    /// Blocks of the filesystem that hold its journal.
    journal: Vec<std::ops::Range<u64>>,
}

impl Setup {
    /// The command that judges a power cut of the workload in `file` again, by every judge of this setup. `file` is as a shell
    /// takes it.
    #[must_use]
    pub fn replay_line(&self, file: &str, cut: Option<&CutName>) -> String {
        let option = |is_set: bool, text: String| if is_set { text } else { String::new() };
        format!(
            "weir crash run {file} --ground {} --engine {} --journal {} --seed {}{}{}{}{}",
            self.ground.name(),
            self.engine(),
            self.options.mode,
            self.seed,
            option(self.tear_bytes != BLOCK_BYTES as u32, format!(" --tear {}", self.tear_bytes)),
            option(self.cut_recovery > 0, " --cut-recovery 1".to_owned()),
            option(self.outside > 0, " --outside 1".to_owned()),
            cut.map_or_else(String::new, |cut| format!(" --cut {cut}"))
        )
    }
}

impl Bench {
    /// Describes a failure. The text is a workload itself: all but the operations is comment. `replay` is the command that does
    /// it again.
    ///
    /// # Errors
    /// [`PlayError`] if the workload cannot be played.
    pub fn describe_failure(
        &self,
        workload: &Workload,
        failure: &WorkloadFailure,
        replay: &str,
    ) -> Result<String, PlayError> {
        let shown = self.show(workload, failure)?;
        let mut text = String::new();
        let mut line = |told: &str| {
            let _ = writeln!(text, "{}", Plain(told));
        };
        let setup = self.setup();
        line(&format!("# Failure found by {}: {}", failure.defect.by.name(), failure.defect.what));
        line(&format!(
            "# on {}, engine {}, seed {}{}",
            setup.ground.name(),
            setup.engine(),
            setup.seed,
            match setup.tear_bytes as usize {
                BLOCK_BYTES => String::new(),
                bytes => format!(", blocks are torn at multiples of {bytes} bytes"),
            }
        ));
        line(&format!("# replay: {replay}"));
        line("");
        for (nth, operation) in workload.operations.iter().enumerate() {
            let full = if shown.no_space.contains(&nth) { " # finds no space" } else { "" };
            line(&format!("{operation}{full}"));
            if nth + 1 == failure.operations {
                line(&told_cut(failure.cut.as_ref()));
            }
        }
        line("");
        self.tell_lost(failure, &shown, &mut line);
        line("# promises made before the cut:");
        let begun = &workload.operations[..failure.operations.min(workload.operations.len())];
        let calls: Vec<String> = begun.iter().filter_map(promise).collect();
        list(&calls, &mut line);
        line("# content without the power cut:");
        list(&paths(shown.whole.as_ref()), &mut line);
        line("# content after the power cut:");
        list(&paths(shown.left.as_ref()), &mut line);
        Ok(text)
    }

    fn tell_lost(&self, failure: &WorkloadFailure, shown: &Shown, line: &mut impl FnMut(&str)) {
        match failure.cut.as_ref().map(|cut| &cut.state) {
            None => line("# lost: nothing; the failure needs no power cut"),
            Some(StateName::Drawn(_)) => {
                line("# lost: writes that the device's firmware drops, drawn at random")
            }
            Some(StateName::Kept(_)) => {
                line("# lost of the writes that were not durable:");
                let of_volume = self.setup().ground == FsGround::Volume;
                let is_journal = |block: &u64| shown.journal.iter().any(|range| range.contains(block));
                let lost = failure.lost.iter().map(|block| match block {
                    block if of_volume => format!("block {block} of the disk below the volume"),
                    block if is_journal(block) => format!("block {block}, of the journal"),
                    block => format!("block {block}"),
                });
                list(&lost.collect::<Vec<_>>(), line);
            }
        }
    }

    /// Plays the workload again, and reads the content with and without the cut.
    fn show(&self, workload: &Workload, failure: &WorkloadFailure) -> Result<Shown, PlayError> {
        let shown = Rc::new(RefCell::new(Shown::default()));
        let (told, cut) = (Rc::clone(&shown), failure.cut.clone());
        self.play(async |session| {
            if let Some(CutName { event, state }) = cut {
                session.at_event(event, move |cutter, may_leave| {
                    let cut = cutter.named(may_leave, &state);
                    told.borrow_mut().left = cut.and_then(|cut| cut.recover().ok());
                });
            }
            for (nth, operation) in workload.operations.iter().take(failure.operations).enumerate() {
                if session.perform(operation).await? == Outcome::NoSpace {
                    shown.borrow_mut().no_space.push(nth);
                }
            }
            shown.borrow_mut().whole = session.read_content().await.ok();
            shown.borrow_mut().journal = session.journal();
            session.sleep(SETTLES).await;
            Ok(())
        })??;
        Ok(shown.take())
    }
}

/// A line of text, with escapes for what is not visible: a judge may say several lines, a damaged directory hold any name, and
/// what is no operation has to stay one comment.
struct Plain<'a>(&'a str);

impl Display for Plain<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match is_visible(c) {
            true => to.write_char(c),
            false => write!(to, "{}", c.escape_default()),
        })
    }
}

fn told_cut(cut: Option<&CutName>) -> String {
    match cut {
        Some(cut) => format!("# the power is cut during this operation or after it (event {})", cut.event),
        None => "# no power is cut".to_owned(),
    }
}

/// What a call promises when it has returned.
fn promise(operation: &Operation) -> Option<String> {
    let promised = match operation {
        Operation::Sync => "everything is durable",
        Operation::Synchronise(SyncCall::Fsync | SyncCall::Fdatasync, _) => "what it covers is durable",
        Operation::Synchronise(..) => "what it covers comes before all that is begun later",
        _ => return None,
    };
    Some(format!("{operation}: once it returned, {promised}"))
}

fn paths(found: Option<&Found>) -> Vec<String> {
    let Some(found) = found else { return vec!["the filesystem cannot be mounted or read".to_owned()] };
    let told = |(path, kind): (String, FoundKind)| match kind {
        FoundKind::Directory => format!("{path}/"),
        FoundKind::File(bytes) => {
            let content = found.bytes(&path).unwrap_or(&[]);
            let written = content.iter().filter(|byte| **byte != 0).count();
            format!("{path}: {bytes} bytes, {} of them zeros", content.len() - written)
        }
        FoundKind::Symlink(target) => format!("{path} -> {}", target.escape_ascii()),
    };
    found.paths().into_iter().map(told).collect()
}

fn list(lines: &[String], line: &mut impl FnMut(&str)) {
    lines.iter().take(LINES_MAX).for_each(|told| line(&format!("#   {told}")));
    if lines.len() > LINES_MAX {
        line(&format!("#   and {} more", lines.len() - LINES_MAX));
    } else if lines.is_empty() {
        line("#   nothing");
    }
}
