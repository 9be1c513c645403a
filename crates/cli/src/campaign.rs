//! `weir crash campaign`: the campaigns of power cuts by which Weir is tested, each a subject and its judges.
//!
//! A campaign has *parts*, one for each storage, engine or mode that it goes through. A part is replayed by the same
//! command with its options and the number of a run. Each campaign has a *control*: a part that must fail, since its storage
//! or its filesystem does not keep what is promised. It shows that the judges can fail.

mod subjects;

use std::io::Write as _;

use clap::{Args, Command, Subcommand};
use serde_json::{Value, json};
use weir_crash::{Campaign, Shard, Summary};
use weir_runtime::{Handle, Runtime, Wall, run_on_threads};

use crate::crash::fold_hash;
use crate::error::CliError;
use crate::plain::counted;
use crate::{Verdict, print};
use subjects::{LengthArguments, Subject};

/// Arguments of `weir crash campaign`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CampaignArguments {
    /// List the campaigns, and run nothing
    #[arg(long)]
    list: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    subject: Option<Subject>,
}

/// One part of a campaign: its options as they are typed, and how it is run.
struct Part {
    options: Vec<(&'static str, String)>,
    run: Box<dyn Fn(u64) -> Summary<Value>>,
}

impl Part {
    /// Each thread makes the campaign.
    fn new<C>(options: Vec<(&'static str, String)>, make_campaign: impl Fn() -> C + Sync + 'static) -> Part
    where
        C: Campaign + 'static,
        C::Totals: Send,
    {
        let run = move |count| {
            let shards = run_on_threads(count, |index| make_campaign().run_shard(Shard { index, count }));
            let summary = shards.into_iter().reduce(|mut summary, found| {
                summary.add(found);
                summary
            });
            let Summary { totals, runs, states, failure, trace_hash } = summary.unwrap_or_default();
            let totals = serde_json::to_value(totals).unwrap_or_default();
            Summary { totals, runs, states, failure, trace_hash }
        };
        Part { options, run: Box::new(run) }
    }

    /// A control: what claims more than it keeps.
    fn control<C>(claims: &str, make_campaign: impl Fn() -> C + Sync + 'static) -> Part
    where
        C: Campaign + 'static,
        C::Totals: Send,
    {
        Part::new(vec![("claims", claims.to_owned())], make_campaign)
    }

    /// Its options, each as its name and its value, without those that are not set.
    fn words(&self) -> Vec<String> {
        let options = self.options.iter().filter(|(_, value)| value != "no");
        let named = options.map(|(name, value)| match value.as_str() {
            "yes" => (*name).to_owned(),
            value => format!("{name} {value}"),
        });
        named.collect()
    }
}

/// Runs `weir crash campaign`; damaged if a state is wrong, or if a control passes.
pub(crate) fn run(arguments: &CampaignArguments) -> Result<Verdict, CliError> {
    match &arguments.subject {
        Some(subject) if !arguments.list => run_subject(subject),
        _ => print_list(arguments.json),
    }
}

fn print_list(is_json: bool) -> Result<Verdict, CliError> {
    let commands = Subject::augment_subcommands(Command::new(""));
    let title = |command: &Command| command.get_about().map(ToString::to_string).unwrap_or_default();
    let entries: Vec<(&str, String)> =
        commands.get_subcommands().map(|command| (command.get_name(), title(command))).collect();
    if is_json {
        let names: Vec<Value> =
            entries.iter().map(|(name, title)| json!({ "name": name, "title": title })).collect();
        print(&serde_json::to_string_pretty(&names)?)?;
    } else {
        let lines: Vec<String> = entries.iter().map(|(name, title)| format!("{name:10}{title}")).collect();
        print(&lines.join("\n"))?;
    }
    Ok(Verdict::Good)
}

fn run_subject(subject: &Subject) -> Result<Verdict, CliError> {
    let (name, length, subject) = subject.entry();
    let parts =
        if length.control { vec![subject.control(length.plan())] } else { subject.parts(length.plan())? };
    let clock = Runtime::wall(Wall::default())?.handle();
    let mut report = Report::default();
    for part in &parts {
        report.add(name, length, part, &clock)?;
    }
    if length.json {
        print(&serde_json::to_string_pretty(&report.document(name, length))?)?;
    }
    let is_as_expected = (report.failures > 0) == length.control;
    Ok(if is_as_expected { Verdict::Good } else { Verdict::Damaged })
}

/// What the parts of a campaign have found so far.
#[derive(Default)]
struct Report {
    states: u64,
    failures: u64,
    trace_hash: u64,
    parts: Vec<Value>,
}

impl Report {
    /// Runs a part, and prints what it has found.
    fn add(
        &mut self,
        name: &str,
        length: &LengthArguments,
        part: &Part,
        clock: &Handle,
    ) -> Result<(), CliError> {
        let words = part.words();
        let title = if words.is_empty() { name.to_owned() } else { format!("{name}: {}", words.join(", ")) };
        let began = clock.now();
        let summary = (part.run)(length.shards);
        let seconds = clock.now().since(began).as_secs_f64();
        self.states += summary.states;
        self.failures += u64::from(summary.failure.is_some());
        self.trace_hash = fold_hash(self.trace_hash, summary.trace_hash);
        let mut document = summary.totals;
        for (name, value) in &part.options {
            // A number is one for scripts, too.
            document[*name] = value.parse::<u64>().map_or_else(|_| json!(value), Value::from);
        }
        document["runs"] = json!(summary.runs);
        document["states"] = json!(summary.states);
        document["failures"] = json!(u64::from(summary.failure.is_some()));
        document["trace_hash"] = json!(format!("{:016x}", summary.trace_hash));
        document["states_per_minute"] = json!((summary.states as f64 * 60.0 / seconds.max(1e-9)).round());
        if let Some(failure) = &summary.failure {
            // The options of a control are not typed.
            let typed = if length.control { vec!["control".to_owned()] } else { words };
            let typed: String = typed.iter().map(|word| format!(" --{word}")).collect();
            let (seed, run) = (length.seed, failure.run);
            let replay = format!("weir crash campaign {name}{typed} --seed {seed} --only {run}");
            let mut errors = std::io::stderr();
            // Where standard error is closed, the document and the exit code still say it.
            if length.only.is_some() {
                let _ = failure.story.iter().try_for_each(|line| writeln!(errors, "{line}"));
            }
            let _ = writeln!(
                errors,
                "{title}, run {run}, round {}, event {}: {}\nreplay: {replay}",
                failure.round, failure.event, failure.what
            );
            document["replay"] = json!(replay);
        }
        if !length.json {
            print(&format!(
                "{title}: {} of {}: {}",
                counted(summary.states, "state", "states"),
                counted(summary.runs, "run", "runs"),
                match (summary.failure.is_some(), length.control) {
                    (true, false) => "FAILED",
                    (false, false) => "all as promised",
                    (true, true) => "it fails, as a control must",
                    (false, true) =>
                        "FAILED: nothing is wrong with the control, so the judges miss what it does",
                }
            ))?;
        }
        self.parts.push(document);
        Ok(())
    }

    fn document(&self, name: &str, length: &LengthArguments) -> Value {
        json!({
            "campaign": name,
            "control": length.control,
            "seed": length.seed,
            "states": self.states,
            "failures": self.failures,
            "trace_hash": format!("{:016x}", self.trace_hash),
            "parts": self.parts,
        })
    }
}
