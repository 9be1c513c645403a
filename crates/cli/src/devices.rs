//! `weir devices`: the devices that can be emulated, and the sources of their numbers.

use clap::Args;
use serde::Serialize;
use weir_flash::{Kind, OrderMemory, Parameter, Profile};

use crate::error::CliError;
use crate::print;
use crate::size::Size;
use crate::table::paragraphs;

/// Arguments of `weir devices`.
#[derive(Debug, Args)]
pub(crate) struct DevicesArguments {
    /// Show every parameter of this device: a name, or a profile of your own that ends in .toml
    #[arg(value_name = "NAME|FILE")]
    device: Option<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// One device.
#[derive(Serialize)]
struct Device {
    name: String,
    title: String,
    capacity_bytes: u64,
    channels: u32,
    dies: u32,
    queue_depth: u32,
    mechanism: &'static str,
    sourced: usize,
    fitted: usize,
    assumed: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parameters: Vec<Parameter>,
    /// What keeping requests in order takes, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    order_memory: Option<OrderMemory>,
}

impl Device {
    fn load(name: &str) -> Result<Device, CliError> {
        let (profile, parameters) = Profile::load(name)?;
        let count = |kind| parameters.iter().filter(|parameter| parameter.kind == kind).count();
        Ok(Device {
            capacity_bytes: profile.blocks * 4096,
            channels: profile.nand.channels,
            dies: profile.nand.channels * profile.nand.ways,
            queue_depth: profile.host.queue_depth,
            mechanism: profile.barrier.mechanism.name(),
            order_memory: profile.order_memory(),
            sourced: count(Kind::Sourced),
            fitted: count(Kind::Fitted),
            assumed: count(Kind::Assumed),
            name: profile.name,
            title: profile.title,
            parameters,
        })
    }
}

/// Shows one device, or lists them all.
pub(crate) fn run(arguments: &DevicesArguments) -> Result<(), CliError> {
    if let Some(name) = &arguments.device {
        let device = Device::load(name)?;
        return print(&if arguments.json {
            serde_json::to_string_pretty(&device)?
        } else {
            describe_device(&device)
        });
    }
    let devices = Profile::NAMES.into_iter().map(Device::load).collect::<Result<Vec<_>, _>>()?;
    let devices: Vec<Device> = devices
        .into_iter()
        .map(|device| Device { parameters: Vec::new(), order_memory: None, ..device })
        .collect();
    print(&if arguments.json { serde_json::to_string_pretty(&devices)? } else { all(&devices) })
}

/// What each device is, and its measures below.
fn all(devices: &[Device]) -> String {
    let mut text = String::new();
    for device in devices {
        text += &format!(
            "{}: {}\n  {} GiB; channels: {}, dies: {}, queue depth: {}; barriers by {}; parameters: {} sourced, {} fitted, {} assumed\n",
            device.name,
            device.title,
            device.capacity_bytes >> 30,
            device.channels,
            device.dies,
            device.queue_depth,
            device.mechanism,
            device.sourced,
            device.fitted,
            device.assumed,
        );
    }
    paragraphs(&(text + "\n`weir devices NAME` shows every parameter with its source."))
}

/// A line for each parameter, and its source below: too much for a table.
fn describe_device(device: &Device) -> String {
    let mut text = format!("{}: {}", device.name, device.title);
    for Parameter { key, value, kind, source, range } in &device.parameters {
        let kind = match kind {
            Kind::Sourced => "sourced",
            Kind::Fitted => "fitted",
            Kind::Assumed => "assumed",
        };
        let range = range.as_ref().map_or(String::new(), |[least, most]| {
            // Between two words there is nothing.
            let to = if least.starts_with(|c: char| c.is_ascii_digit()) { "to" } else { "or" };
            format!(", {least} {to} {most}")
        });
        text += &format!("\n{key}: {value} ({kind}{range})\n  {source}");
    }
    if let Some(OrderMemory { tags, increments, records }) = device.order_memory {
        for (key, bytes, what) in [
            ("tags", tags, "request and size of each entry of the cache"),
            ("increments", increments, "changes of the map that wait for the next checkpoint"),
            ("records", records, "coalescing records that wait for the next page of them"),
        ] {
            text += &format!("\nmemory.{key}: {} (computed)\n  {what}", Size(bytes));
        }
    }
    paragraphs(&text)
}
