//! Workloads: ordered writes, and their measurement.
