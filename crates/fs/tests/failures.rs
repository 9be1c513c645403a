//! Time, and storage that fails: what is old enough is committed by itself, and after a failed write or flush
//! nothing is called durable any more, nor shown to anybody.

mod support;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use event_listener::Event;
use support::{BLOCKS, content, disk, mount, new_image, read_file, simulated_with, write_file};
use weir_ext4::ROOT_INODE;
use weir_fs::{Conflicts, Engine, FsError, MountOptions};
use weir_storage::{AdversaryDisk, Capabilities, Command, Rejected, Storage, StorageError, Ticket};

const ENGINES: [Engine; 3] = [
    Engine::Dual { conflicts: Conflicts::Copy },
    Engine::Dual { conflicts: Conflicts::List },
    Engine::Jbd2 { barrier: true },
];

/// What fails of a disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fails {
    Nothing,
    Flushes,
    /// Writes whose first byte is this.
    Writes(u8),
}

struct Faulty {
    disk: Rc<AdversaryDisk>,
    fails: Cell<Fails>,
}

impl Storage for Faulty {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }

    fn capabilities(&self) -> &Capabilities {
        self.disk.capabilities()
    }

    fn slots(&self) -> &Event {
        self.disk.slots()
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        let fails = match (&command, self.fails.get()) {
            (Command::Flush, Fails::Flushes) => true,
            (Command::Write(write), Fails::Writes(first)) => {
                write.parts.iter().any(|part| part.data.bytes().first() == Some(&first))
            }
            _ => false,
        };
        if !fails {
            return self.disk.submit(command);
        }
        let (ticket, completer) = Ticket::pending();
        completer.transferred(Err(StorageError::NoSpace));
        Ok(ticket)
    }
}

fn options(engine: Engine) -> MountOptions {
    MountOptions { engine: Some(engine), ..MountOptions::default() }
}

#[test]
fn what_is_old_enough_is_committed_without_a_call() {
    for engine in ENGINES {
        simulated_with(0, async |clock| {
            let below = disk(&clock, &new_image(BLOCKS), true);
            let fs = mount(&clock, &below, options(engine)).await.unwrap();
            for name in [b"a", b"b"] {
                let before = fs.statistics().journal.commits;
                write_file(&fs, name, &content(10_000)).await;
                clock.sleep(Duration::from_secs(60)).await;
                assert!(fs.statistics().journal.commits > before, "{engine:?}");
            }
            let after = disk(&clock, &below.image(), true);
            let fs = mount(&clock, &after, options(engine)).await.unwrap();
            assert_eq!(read_file(&fs, b"b").await.unwrap(), content(10_000), "{engine:?}");
        });
    }
}

#[test]
fn after_a_failed_flush_nothing_is_called_durable() {
    for engine in ENGINES {
        simulated_with(0, async |clock| {
            let below = disk(&clock, &new_image(BLOCKS), true);
            let faulty = Rc::new(Faulty { disk: below, fails: Cell::new(Fails::Nothing) });
            let fs = mount(&clock, &faulty, options(engine)).await.unwrap();
            let file = write_file(&fs, b"a", &content(10_000)).await;
            fs.fsync(file).await.unwrap();
            fs.write(file, 0, &[9; 4096]).await.unwrap();
            faulty.fails.set(Fails::Flushes);
            assert!(fs.sync().await.is_err(), "{engine:?}");
            faulty.fails.set(Fails::Nothing);
            assert!(fs.read_only().is_some(), "{engine:?}");
            let later =
                [fs.sync().await, fs.fsync(file).await, fs.fdatasync(file).await, fs.fbarrier(file).await];
            assert!(
                later.iter().all(|call| matches!(call, Err(FsError::ReadOnly(_)))),
                "{engine:?}: {later:?}"
            );
        });
    }
}

#[test]
fn a_file_whose_data_failed_never_shows_what_its_blocks_held_before() {
    for engine in ENGINES {
        let image = simulated_with(3, async |clock| {
            let below = disk(&clock, &new_image(BLOCKS), true);
            let fs = mount(&clock, &below, options(engine)).await.unwrap();
            write_file(&fs, b"secret", &vec![0x53; 4096 * 8000]).await;
            fs.sync().await.unwrap();
            fs.unlink(ROOT_INODE, b"secret").await.unwrap();
            fs.unmount().await.unwrap();
            let faulty = Rc::new(Faulty { disk: Rc::clone(&below), fails: Cell::new(Fails::Nothing) });
            // Writeback comes before the commit, so that the failure is over when the commit asks.
            let early = MountOptions {
                dirty_background_bytes: 4096,
                commit_interval: Duration::from_millis(50),
                ..options(engine)
            };
            let fs = mount(&clock, &faulty, early).await.unwrap();
            faulty.fails.set(Fails::Writes(0x77));
            write_file(&fs, b"new", &vec![0x77; 4096 * 4]).await;
            clock.sleep(Duration::from_millis(500)).await;
            assert!(fs.read_only().is_some(), "{engine:?}: the commit went on without its data");
            below.image()
        });
        simulated_with(1, async |clock| {
            let below = disk(&clock, &image, true);
            let fs = mount(&clock, &below, options(engine)).await.unwrap();
            if let Ok(found) = read_file(&fs, b"new").await {
                assert!(!found.contains(&0x53), "{engine:?}: it shows a deleted file");
            }
        });
    }
}
