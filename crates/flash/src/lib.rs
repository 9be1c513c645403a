//! Emulated flash devices.

mod profile;

pub use profile::{
    Barrier, Cache, Flush, Ftl, GcPolicy, Host, Mechanism, Nand, OrderedService, Profile, SimpleService,
};
