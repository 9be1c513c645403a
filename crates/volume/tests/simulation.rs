//! Tests in virtual time.

use weir_runtime::{Handle, Runtime, Simulation};

/// Runs a test in virtual time, its randomness drawn from `seed`.
pub(crate) fn simulate<T>(seed: u64, test: impl AsyncFnOnce(Handle) -> T) -> T {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    runtime.block_on(test(handle)).unwrap()
}
