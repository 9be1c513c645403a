//! What the tests of the program have for a store.

#![allow(dead_code, reason = "the campaigns use a part of it")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it waits for what other processes do"
)]

#[path = "../../tests/support/lag.rs"]
pub mod lag;
#[path = "../../tests/support/seaweed.rs"]
pub mod seaweed;
