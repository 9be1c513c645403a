//! Faults that were found once, each as a test named by what must hold.

mod damage;
mod discards;
mod durability;
mod space;
mod window;
