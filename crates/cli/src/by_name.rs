//! Options whose values are called by names that a library declares.

use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Reads one of these values by its name.
pub(crate) fn by_name<T, const N: usize>(
    values: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    PossibleValuesParser::new(values.map(name)).try_map(move |typed| {
        let found = values.into_iter().find(|value| name(*value) == typed);
        found.ok_or_else(|| format!("{typed} is no value of this option"))
    })
}
