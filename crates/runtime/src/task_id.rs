//! The name of a task.

/// Names a task: a slot in the task table and which of its successive tenants, so that a stale wake-up never
/// reaches a later task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TaskId(u64);

impl TaskId {
    /// The future given to `block_on`, which lives outside the table.
    pub(crate) const MAIN: TaskId = TaskId(u64::MAX);

    pub(crate) fn new(slot: usize, tenant: u32) -> Self {
        TaskId(u64::from(tenant) << 32 | slot as u64)
    }

    pub(crate) fn slot(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    pub(crate) fn tenant(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn as_u64(self) -> u64 {
        self.0
    }
}
