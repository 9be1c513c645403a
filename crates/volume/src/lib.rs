//! A log-structured volume that turns any storage into a barrier-compliant one.
