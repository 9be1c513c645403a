//! Faults that were found once, each as a test named by what must hold.

#[path = "../bench/mod.rs"]
mod bench;
mod damage;
mod discards;
mod durability;
mod space;
mod window;
