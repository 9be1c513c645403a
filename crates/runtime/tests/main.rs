//! The tests of this crate from outside, as one program.

mod cores;
mod ring;
mod semaphore;
mod virtual_time;
mod wall;
