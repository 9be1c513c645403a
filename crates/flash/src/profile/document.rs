//! A profile as a TOML document: every number with its source.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::ProfileError;
use super::unit::Quantity;
use super::{
    Allocation, Barrier, Cache, Flush, Ftl, GcPolicy, Host, InternalFlush, Layout, Mechanism, Nand,
    OrderedService, Profile, Replacement, ShareBy, SimpleService,
};

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Published; the source says where.
    Sourced,
    /// Chosen so that rows of a paper come out; the source says which.
    Fitted,
    /// Plausible; the range says how far it may be off.
    Assumed,
}

/// A number of a profile, with where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parameter {
    /// Its key, as `nand.erase`.
    pub key: String,
    /// Its value, as the profile writes it.
    pub value: String,
    /// Where it comes from.
    pub kind: Kind,
    /// The publication, the rows, or the reason.
    pub source: String,
    /// Smallest and largest plausible value, where it is assumed.
    pub range: Option<[String; 2]>,
}

/// A value as it is given.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    value: toml::Value,
    kind: Kind,
    source: String,
    range: Option<[toml::Value; 2]>,
}

type Section = BTreeMap<String, Given>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: String,
    title: String,
    device: Section,
    host: Section,
    cache: Section,
    nand: Section,
    ftl: Section,
    flush: Section,
    barrier: Section,
}

/// All keys of a profile.
const KEYS: [&str; 49] = [
    "device.capacity",
    "cache.size",
    "cache.destage_share",
    "cache.replacement",
    "cache.copy",
    "ftl.gc",
    "ftl.gc_free_blocks",
    "ftl.checkpoint_share",
    "ftl.log_share",
    "ftl.share",
    "ftl.share_by",
    "ftl.logical_page",
    "ftl.allocation",
    "ftl.summary_pages",
    "ftl.log_buffer",
    "flush.fixed",
    "flush.journal_pages",
    "barrier.mechanism",
    "barrier.penalty",
    "barrier.tag",
    "barrier.flush_every",
    "barrier.cleaning_batch",
    "barrier.flush_stops_commands",
    "host.queue_depth",
    "host.max_transfer",
    "host.link",
    "host.full_duplex",
    "host.command",
    "host.latency",
    "host.ordered_service",
    "host.simple_service",
    "host.fua",
    "host.packed",
    "host.packed_header",
    "host.packed_pages",
    "host.reliable",
    "host.reliable_extra",
    "nand.channels",
    "nand.ways",
    "nand.planes",
    "nand.multi_plane",
    "nand.blocks_per_plane",
    "nand.pages_per_block",
    "nand.page",
    "nand.read",
    "nand.program",
    "nand.erase",
    "nand.channel",
    "nand.torn_program",
];

/// The values of a document, taken one by one.
struct Reader {
    left: BTreeMap<String, Given>,
    parameters: Vec<Parameter>,
}

/// Reads a profile and its parameters.
pub(super) fn parse(text: &str) -> Result<(Profile, Vec<Parameter>), ProfileError> {
    let document: Document = toml::from_str(text).map_err(|error| malformed(text, &error))?;
    let Document { name, title, device, host, cache, nand, ftl, flush, barrier } = document;
    let sections = [
        ("device", device),
        ("host", host),
        ("cache", cache),
        ("nand", nand),
        ("ftl", ftl),
        ("flush", flush),
        ("barrier", barrier),
    ];
    let values = sections.into_iter().flat_map(|(section, values)| {
        values.into_iter().map(move |(key, given)| (format!("{section}.{key}"), given))
    });
    let left: BTreeMap<String, Given> = values.collect();
    if let Some(key) = left.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(unknown_key(key));
    }
    let mut reader = Reader { left, parameters: Vec::new() };
    let profile = Profile {
        name,
        title,
        blocks: reader.quantity("device.capacity", Quantity::Size)? / 4096,
        host: reader.host()?,
        cache: Cache {
            bytes: reader.quantity("cache.size", Quantity::Size)?,
            destage_share: reader.share("cache.destage_share")?,
            replacement: reader.replacement()?,
            copy_bytes_per_second: reader.copy()?,
        },
        nand: reader.nand()?,
        ftl: Ftl {
            gc: reader
                .word("ftl.gc", &[("greedy", GcPolicy::Greedy), ("cost-benefit", GcPolicy::CostBenefit)])?,
            gc_free_blocks: reader.count("ftl.gc_free_blocks")?,
            checkpoint_share: reader.share("ftl.checkpoint_share")?,
            log_share: reader.share("ftl.log_share")?,
            share: reader.count("ftl.share")?,
            share_by: reader.share_by()?,
            layout: reader.layout()?,
        },
        flush: Flush {
            fixed_ns: reader.quantity("flush.fixed", Quantity::Time)?,
            journal_pages: reader.count("flush.journal_pages")?,
        },
        barrier: Barrier {
            mechanism: reader.word("barrier.mechanism", &Mechanism::ALL.map(|m| (m.name(), m)))?,
            penalty: reader.share("barrier.penalty")?,
            internal: reader.internal_flush()?,
            tag_ns: reader.or("barrier.tag", 0, |reader, key| reader.quantity(key, Quantity::Time))?,
        },
    };
    Ok((profile, reader.parameters))
}

/// Other values of a profile's keys: by key, such as `nand.page`, as the profile would write them.
pub type Changes = BTreeMap<String, toml::Value>;

/// The text of a profile with other values. Each counts as assumed, within a range that is the value itself.
pub(super) fn with_changes(text: &str, changes: &Changes) -> Result<String, ProfileError> {
    if changes.is_empty() {
        return Ok(text.to_owned());
    }
    let mut table: toml::Table = toml::from_str(text).map_err(|error| malformed(text, &error))?;
    for (key, value) in changes {
        let known = key.split_once('.').filter(|_| KEYS.contains(&key.as_str()));
        let section = known.and_then(|(section, name)| Some((table.get_mut(section)?.as_table_mut()?, name)));
        let (section, name) = section.ok_or_else(|| unknown_key(key))?;
        let given = [
            ("value", value.clone()),
            ("kind", "assumed".into()),
            ("source", "changed for this run".into()),
            ("range", vec![value.clone(), value.clone()].into()),
        ];
        let given = given.map(|(field, value)| (field.to_owned(), value));
        section.insert(name.to_owned(), toml::Value::Table(given.into_iter().collect()));
    }
    Ok(table.to_string())
}

/// What the TOML parser found, on one line. What people forget is said in words of profiles: the name, a section,
/// and where a value comes from.
fn malformed(text: &str, error: &toml::de::Error) -> ProfileError {
    let message = error.message();
    if let Some(value) = toml::from_str(text).ok().and_then(|table| bare_value(&table)) {
        return value;
    }
    if let Some(key) = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        match key {
            "name" | "title" => {
                return ProfileError::Format(format!(
                    "the profile has no `{key}`: write {key} = \"...\" before the first section"
                ));
            }
            section if KEYS.iter().any(|known| known.split('.').next() == Some(section)) => {
                return ProfileError::Format(format!("the section [{section}] is missing"));
            }
            _ => {}
        }
    }
    let before = error.span().and_then(|span| text.get(..span.start));
    let line =
        before.map_or_else(String::new, |before| format!("line {}: ", before.matches('\n').count() + 1));
    ProfileError::Format(line + &error.message().replace('\n', " "))
}

/// The first known key whose value stands alone, without where it comes from.
fn bare_value(table: &toml::Table) -> Option<ProfileError> {
    let bare = KEYS.into_iter().find_map(|known| {
        let (section, key) = known.split_once('.')?;
        let value = table.get(section)?.get(key)?;
        (!value.is_table()).then_some((known, value))
    });
    let (key, value) = bare?;
    let right = format!(
        "{{ value = {value}, kind = ..., source = \"...\" }}, of kind \"sourced\", \"fitted\", or \"assumed\" with a range"
    );
    Some(ProfileError::Value { key: key.to_owned(), found: value.to_string(), right })
}

fn unknown_key(key: &str) -> ProfileError {
    let section = key.split_inclusive('.').next().unwrap_or_default();
    let known: Vec<&str> = KEYS.into_iter().filter(|known| known.starts_with(section)).collect();
    ProfileError::Format(format!("there is no key `{key}`, but {}", known.join(", ")))
}

/// A value as text: what it was in the file, without quotes.
fn text_of(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(values) => values.iter().map(text_of).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

impl Reader {
    /// Takes the value of `key`, and its range where it is assumed. `read` gives what a value means, in an order
    /// that the range has to keep, or none where it means nothing; `right` says what does.
    fn take<T: PartialOrd>(
        &mut self,
        key: &str,
        right: &str,
        read: impl Fn(&toml::Value) -> Option<T>,
    ) -> Result<T, ProfileError> {
        let missing = || ProfileError::Format(format!("the key `{key}` is missing"));
        let Given { value, kind, source, range } = self.left.remove(key).ok_or_else(missing)?;
        if source.trim().is_empty() {
            return Err(ProfileError::Format(format!("`{key}` has no source")));
        }
        if (kind == Kind::Assumed) != range.is_some() {
            let rule = "an assumed value has a range, and no other has";
            return Err(ProfileError::Format(format!("`{key}`: {rule}")));
        }
        let known = |key: &str, value| {
            let wrong = || ProfileError::Value {
                key: key.to_owned(),
                found: toml::Value::to_string(value),
                right: right.to_owned(),
            };
            read(value).ok_or_else(wrong)
        };
        let meaning = known(key, &value)?;
        if let Some([least, most]) = &range {
            let ends = format!("{key}, range");
            if !(known(&ends, least)?..=known(&ends, most)?).contains(&meaning) {
                let right = format!("within its range, {} to {}", text_of(least), text_of(most));
                return Err(ProfileError::Value { key: key.to_owned(), found: value.to_string(), right });
            }
        }
        self.parameters.push(Parameter {
            key: key.to_owned(),
            value: text_of(&value),
            kind,
            source,
            range: range.map(|[least, most]| [text_of(&least), text_of(&most)]),
        });
        Ok(meaning)
    }

    fn quantity(&mut self, key: &str, quantity: Quantity) -> Result<u64, ProfileError> {
        let right = format!("a number in {}", quantity.names());
        self.take(key, &right, |value| quantity.read(value.as_str()?))
    }

    fn times(&mut self, key: &str) -> Result<Vec<u64>, ProfileError> {
        let right = format!("a time in {}, or a list of such", Quantity::Time.names());
        let read = |value: &toml::Value| Quantity::Time.read(value.as_str()?);
        self.take(key, &right, |value| match value {
            toml::Value::Array(values) if !values.is_empty() => values.iter().map(read).collect(),
            one => Some(vec![read(one)?]),
        })
    }

    fn count(&mut self, key: &str) -> Result<u32, ProfileError> {
        self.take(key, "a whole number below 2^32", |value| u32::try_from(value.as_integer()?).ok())
    }

    /// A share; from where to where is [`Profile::check`]'s to say.
    fn share(&mut self, key: &str) -> Result<f64, ProfileError> {
        self.take(key, "a share, as 0.5", |value| {
            let share = value.as_float().or_else(|| value.as_integer().map(|share| share as f64));
            share.filter(|share| share.is_finite())
        })
    }

    fn switch(&mut self, key: &str) -> Result<bool, ProfileError> {
        self.take(key, "true or false", toml::Value::as_bool)
    }

    /// One of `words`; a range of words is in their order.
    fn word<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Result<T, ProfileError> {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let right = format!("one of {}", names.join(", "));
        let place = self.take(key, &right, |value| {
            let word = value.as_str()?;
            names.iter().position(|name| *name == word)
        })?;
        Ok(words[place].1)
    }

    /// What `read` gives for `key`; `default` where the profile says nothing of it.
    fn or<T>(
        &mut self,
        key: &str,
        default: T,
        read: impl FnOnce(&mut Reader, &str) -> Result<T, ProfileError>,
    ) -> Result<T, ProfileError> {
        if self.left.contains_key(key) { read(self, key) } else { Ok(default) }
    }

    /// What a feature costs, where the profile has it; its time is not asked for elsewhere.
    fn time_where(&mut self, feature: &str, cost: &str) -> Result<Option<u64>, ProfileError> {
        let is_there = self.or(feature, false, Reader::switch)?;
        let time = |reader: &mut Reader, key: &str| reader.quantity(key, Quantity::Time);
        let cost_ns = self.or(cost, 0, time)?;
        Ok(is_there.then_some(cost_ns))
    }

    /// The paper's values where a profile says nothing: other mechanisms do not need them.
    fn internal_flush(&mut self) -> Result<InternalFlush, ProfileError> {
        let InternalFlush { every_ns, cleaning_batch, stops_commands } = InternalFlush::default();
        Ok(InternalFlush {
            every_ns: self
                .or("barrier.flush_every", every_ns, |reader, key| reader.quantity(key, Quantity::Time))?,
            cleaning_batch: self.or("barrier.cleaning_batch", cleaning_batch, Reader::count)?,
            stops_commands: self.or("barrier.flush_stops_commands", stops_commands, Reader::switch)?,
        })
    }

    fn replacement(&mut self) -> Result<Replacement, ProfileError> {
        let words = [("fifo", Replacement::Fifo), ("lru", Replacement::Lru)];
        self.or("cache.replacement", Replacement::default(), |reader, key| reader.word(key, &words))
    }

    fn copy(&mut self) -> Result<Option<u64>, ProfileError> {
        self.or("cache.copy", None, |reader, key| reader.quantity(key, Quantity::Rate).map(Some))
    }

    fn share_by(&mut self) -> Result<ShareBy, ProfileError> {
        let words = ShareBy::ALL.map(|way| (way.name(), way));
        self.or("ftl.share_by", ShareBy::default(), |reader, key| reader.word(key, &words))
    }

    fn layout(&mut self) -> Result<Layout, ProfileError> {
        let size = |reader: &mut Reader, key: &str| reader.quantity(key, Quantity::Size);
        let Layout { logical_page_blocks, allocation, summary_pages, log_buffer_bytes } = Layout::default();
        let logical_page = self.or("ftl.logical_page", u64::from(logical_page_blocks) * 4096, size)?;
        if logical_page % 4096 != 0 {
            let right = "a multiple of 4 KiB".to_owned();
            return Err(ProfileError::Value {
                key: "ftl.logical_page".to_owned(),
                found: logical_page.to_string(),
                right,
            });
        }
        let words = [("dynamic", Allocation::Dynamic), ("static", Allocation::Static)];
        Ok(Layout {
            logical_page_blocks: u32::try_from(logical_page / 4096).unwrap_or(u32::MAX),
            allocation: self.or("ftl.allocation", allocation, |reader, key| reader.word(key, &words))?,
            summary_pages: self.or("ftl.summary_pages", summary_pages, Reader::switch)?,
            log_buffer_bytes: self.or("ftl.log_buffer", log_buffer_bytes, size)?,
        })
    }

    fn host(&mut self) -> Result<Host, ProfileError> {
        let ordered = [
            ("none", OrderedService::None),
            ("serial", OrderedService::Serial),
            ("pipelined", OrderedService::Pipelined),
        ];
        Ok(Host {
            queue_depth: self.count("host.queue_depth")?,
            max_transfer_blocks: u32::try_from(self.quantity("host.max_transfer", Quantity::Size)? / 4096)
                .unwrap_or(u32::MAX),
            link_bytes_per_second: self.quantity("host.link", Quantity::Rate)?,
            full_duplex: self.switch("host.full_duplex")?,
            command_ns: self.quantity("host.command", Quantity::Time)?,
            latency_ns: self.quantity("host.latency", Quantity::Time)?,
            ordered_service: self.word("host.ordered_service", &ordered)?,
            simple_service: self
                .word("host.simple_service", &[("fifo", SimpleService::Fifo), ("any", SimpleService::Any)])?,
            fua: self.switch("host.fua")?,
            packed_header_ns: self.time_where("host.packed", "host.packed_header")?,
            packed_pages: self.or("host.packed_pages", false, Reader::switch)?,
            reliable_extra_ns: self.time_where("host.reliable", "host.reliable_extra")?,
        })
    }

    fn nand(&mut self) -> Result<Nand, ProfileError> {
        Ok(Nand {
            channels: self.count("nand.channels")?,
            ways: self.count("nand.ways")?,
            planes: self.count("nand.planes")?,
            multi_plane: self.switch("nand.multi_plane")?,
            blocks_per_plane: self.count("nand.blocks_per_plane")?,
            pages_per_block: self.count("nand.pages_per_block")?,
            page_bytes: u32::try_from(self.quantity("nand.page", Quantity::Size)?).unwrap_or(u32::MAX),
            read_ns: self.times("nand.read")?,
            program_ns: self.times("nand.program")?,
            erase_ns: self.quantity("nand.erase", Quantity::Time)?,
            channel_bytes_per_second: self.quantity("nand.channel", Quantity::Rate)?,
            torn_program: self.or("nand.torn_program", false, Reader::switch)?,
        })
    }
}
