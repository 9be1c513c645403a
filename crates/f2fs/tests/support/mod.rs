//! Images of `mkfs.f2fs`, filled by `sload.f2fs`, in memory.

use std::path::Path;
use std::process::Command;

use weir_f2fs::Image;
use weir_format::{BLOCK_BYTES, FormatError, ImageReader};
use weir_runtime::{Runtime, Simulation};

/// An image in memory.
pub struct Memory(pub Vec<u8>);

impl ImageReader for Memory {
    type Error = FormatError;

    fn blocks(&self) -> u64 {
        (self.0.len() / BLOCK_BYTES) as u64
    }

    async fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), FormatError> {
        let start = block as usize * BLOCK_BYTES;
        let found = self.0.get(start..start + bytes.len());
        let beyond = FormatError::Invalid { what: "a read beyond the end of the image" };
        bytes.copy_from_slice(found.ok_or(beyond)?);
        Ok(())
    }
}

/// Runs a program of f2fs-tools, which has to succeed: what it printed.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program).args(arguments).output();
    let done = done.unwrap_or_else(|error| panic!("{program}: {error}: install the package f2fs-tools"));
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {arguments:?}: {text}");
    text
}

/// An image of so many MiB that `mkfs.f2fs` makes with these options, with a copy of a directory if one is given.
pub fn made(mib: u64, options: &[&str], from: Option<&Path>) -> Memory {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(mib << 20).unwrap();
    let name = path.to_str().unwrap();
    run("mkfs.f2fs", &[&["-q", "-f"], options, &[name]].concat());
    if let Some(from) = from {
        run("sload.f2fs", &["-f", from.to_str().unwrap(), name]);
    }
    Memory(std::fs::read(&path).unwrap())
}

/// Opens an image, and does something with it.
pub fn with_image<T>(
    memory: &Memory,
    work: impl AsyncFnOnce(&Image<'_, Memory>) -> Result<T, FormatError>,
) -> Result<T, FormatError> {
    let runtime = Runtime::simulated(Simulation::default());
    let work = async {
        let image = Image::open(memory).await?;
        work(&image).await
    };
    runtime.block_on(work).unwrap()
}
