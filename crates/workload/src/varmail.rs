//! *Varmail*: a mail server that keeps each message in a file of one directory, as Filebench's personality `varmail.f`.
//! Each thread goes through thirteen operations again and again:
//!
//! - a file is deleted;
//! - a file is made, appended to, synchronised, closed;
//! - a file is opened, read, appended to, synchronised, closed;
//! - a file is opened, read, closed.
//!
//! An append has 1 byte to 16 KiB, as Filebench's `appendfilerand` with an `iosize` of 16 KiB, which `varmail.f` calls
//! the mean. Files have 1 byte to 32 KiB at the beginning, 16 KiB on average, where Filebench draws from a gamma
//! distribution. A file that a thread works on is not for the others, as in Filebench.

use weir_runtime::Random;

/// `iosize` of `appendfilerand` in `varmail.f`: bytes of an append, at most.
pub const APPEND_BYTES: u32 = 16 << 10;

/// Bytes of a file at the beginning, at most.
const FILE_BYTES: u64 = 32 << 10;

/// The number of a file that no thread works on, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The number, which makes the name.
    pub number: u32,
    /// The file's length.
    pub bytes: u64,
}

impl Message {
    /// The file's name.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{:08}", self.number)
    }
}

/// All messages: those that no thread works on, and the numbers of those that do not exist.
#[derive(Clone, Debug)]
pub struct Messages {
    idle: Vec<Message>,
    unused: Vec<u32>,
}

impl Messages {
    /// Messages of so many names, 5 and more, with lengths drawn from `random`.
    #[must_use]
    pub fn new(names: u32, random: &mut Random) -> Messages {
        let (unused, exist): (Vec<u32>, Vec<u32>) = (0..names.max(5)).partition(|number| number % 5 == 4);
        let message = |number| Message { number, bytes: 1 + random.below(FILE_BYTES) };
        Messages { idle: exist.into_iter().map(message).collect(), unused }
    }

    /// The messages that no thread works on: at the beginning all that are to be made.
    #[must_use]
    pub fn idle(&self) -> &[Message] {
        &self.idle
    }
}

/// Where messages are kept. Each operation is one of the thirteen.
#[expect(async_fn_in_trait, reason = "a user runs in the thread that made it")]
pub trait MailStore {
    /// A file that is open.
    type File;
    /// Why an operation fails.
    type Error;

    /// Whether users stop.
    fn is_over(&self) -> bool;

    /// Gives the messages, which all users share, to `work`.
    fn with_messages<R>(&self, work: impl FnOnce(&mut Messages) -> R) -> R;

    /// A number that decides what comes next was drawn.
    fn note_choice(&self, _number: u64) {}

    /// Deletes a file.
    async fn delete(&self, message: &Message) -> Result<(), Self::Error>;

    /// Makes a file, and leaves it open.
    async fn create(&self, message: &Message) -> Result<Self::File, Self::Error>;

    /// Opens a file.
    async fn open(&self, message: &Message) -> Result<Self::File, Self::Error>;

    /// Reads all of a file.
    async fn read(&self, file: &Self::File, bytes: u64) -> Result<(), Self::Error>;

    /// Writes so many bytes at the end of a file, which is at `offset`.
    async fn append(&self, file: &Self::File, offset: u64, bytes: u64) -> Result<(), Self::Error>;

    /// Synchronises a file.
    async fn synchronise(&self, file: &Self::File) -> Result<(), Self::Error>;

    /// Closes a file.
    async fn close(&self, file: Self::File) -> Result<(), Self::Error>;
}

/// A thread of the server.
pub struct MailUser<S> {
    store: S,
    random: Random,
    append_bytes: u64,
}

impl<S: MailStore> MailUser<S> {
    /// A thread that appends so many bytes at most, 1 and more.
    pub fn new(store: S, random: Random, append_bytes: u32) -> MailUser<S> {
        MailUser { store, random, append_bytes: u64::from(append_bytes.max(1)) }
    }

    /// Goes through the operations until the store says that it is over.
    ///
    /// # Errors
    /// The first operation that fails.
    pub async fn run(mut self) -> Result<S, S::Error> {
        while !self.store.is_over() {
            self.delete().await?;
            self.make().await?;
            for appends in [true, false] {
                self.visit(appends).await?;
            }
        }
        Ok(self.store)
    }

    /// One of the files that no thread works on; it is for this thread now.
    fn choose(&mut self) -> Option<Message> {
        let MailUser { store, random, .. } = self;
        store.with_messages(|messages| {
            let idle = &mut messages.idle;
            (!idle.is_empty()).then(|| {
                let nth = random.below(idle.len() as u64);
                store.note_choice(nth);
                idle.swap_remove(nth as usize)
            })
        })
    }

    async fn delete(&mut self) -> Result<(), S::Error> {
        let Some(message) = self.choose() else { return Ok(()) };
        self.store.delete(&message).await?;
        self.store.with_messages(|messages| messages.unused.push(message.number));
        Ok(())
    }

    async fn make(&mut self) -> Result<(), S::Error> {
        let unused = self.store.with_messages(|messages| messages.unused.pop());
        let Some(number) = unused else { return Ok(()) };
        let message = Message { number, bytes: 0 };
        let file = self.store.create(&message).await?;
        let message = self.append(&file, message).await?;
        self.close(file, message).await
    }

    async fn visit(&mut self, appends: bool) -> Result<(), S::Error> {
        let Some(message) = self.choose() else { return Ok(()) };
        let file = self.store.open(&message).await?;
        self.store.read(&file, message.bytes).await?;
        let message = if appends { self.append(&file, message).await? } else { message };
        self.close(file, message).await
    }

    /// Appends, and synchronises the file.
    async fn append(&mut self, file: &S::File, message: Message) -> Result<Message, S::Error> {
        let bytes = 1 + self.random.below(self.append_bytes);
        self.store.note_choice(bytes);
        self.store.append(file, message.bytes, bytes).await?;
        self.store.synchronise(file).await?;
        Ok(Message { bytes: message.bytes + bytes, ..message })
    }

    async fn close(&self, file: S::File, message: Message) -> Result<(), S::Error> {
        self.store.close(file).await?;
        self.store.with_messages(|messages| messages.idle.push(message));
        Ok(())
    }
}
