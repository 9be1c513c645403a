//! `weir devices`: what can be emulated, and where its numbers come from.

use clap::Args;
use serde::Serialize;
use weir_flash::{Kind, Parameter, Profile};

use crate::error::CliError;
use crate::print;
use crate::table::Grid;

/// Arguments of `weir devices`.
#[derive(Debug, Args)]
pub(crate) struct DevicesArguments {
    /// A device's name, or a profile of your own that ends in .toml: shows every parameter
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
        return print(&if arguments.json { serde_json::to_string_pretty(&device)? } else { one(&device) });
    }
    let devices = Profile::NAMES.into_iter().map(Device::load).collect::<Result<Vec<_>, _>>()?;
    let devices: Vec<Device> =
        devices.into_iter().map(|device| Device { parameters: Vec::new(), ..device }).collect();
    print(&if arguments.json { serde_json::to_string_pretty(&devices)? } else { all(&devices) })
}

fn all(devices: &[Device]) -> String {
    let mut grid = Grid::new(&[
        ("device", 0, ""),
        ("GiB", 0, ""),
        ("channels", 2, ""),
        ("dies", 3, ""),
        ("queue", 1, ""),
        ("barriers by", 0, ""),
        ("parameters", 4, "parameters: sourced / fitted / assumed."),
        ("what it is", 0, ""),
    ])
    .sentences();
    for device in devices {
        grid.row(vec![
            device.name.clone(),
            (device.capacity_bytes >> 30).to_string(),
            device.channels.to_string(),
            device.dies.to_string(),
            device.queue_depth.to_string(),
            device.mechanism.to_owned(),
            format!("{} / {} / {}", device.sourced, device.fitted, device.assumed),
            device.title.clone(),
        ]);
    }
    format!("{}\n\nweir devices NAME shows every parameter and where it comes from.", grid.text())
}

fn one(device: &Device) -> String {
    let heads =
        [("parameter", 0, ""), ("value", 0, ""), ("kind", 0, ""), ("range", 1, ""), ("source", 0, "")];
    let mut grid = Grid::new(&heads).sentences();
    for Parameter { key, value, kind, source, range } in &device.parameters {
        let kind = match kind {
            Kind::Sourced => "sourced",
            Kind::Fitted => "fitted",
            Kind::Assumed => "assumed",
        };
        let range = range.as_ref().map_or(String::new(), |[least, most]| {
            // Between two words there is nothing.
            let to = if least.starts_with(|c: char| c.is_ascii_digit()) { "to" } else { "or" };
            format!("{least} {to} {most}")
        });
        grid.row(vec![key.clone(), value.clone(), kind.to_owned(), range, source.clone()]);
    }
    format!("{}: {}\n{}", device.name, device.title, grid.text())
}
