//! A failing sequence made shorter, by delta debugging (Zeller and Hildebrandt, *Simplifying and Isolating Failure-Inducing
//! Input*, IEEE TSE 2002): parts are left out, halves first, until no part can be.

/// Leaves out parts of `items` as long as `fails` says that the rest still fails; whether any part was left out.
pub(crate) fn leave_out<T: Clone>(items: &mut Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> bool {
    let mut any = false;
    let mut size = items.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        while from < items.len() {
            let mut fewer = items.clone();
            fewer.drain(from..(from + size).min(fewer.len()));
            if fails(&fewer) {
                (*items, any) = (fewer, true);
            } else {
                from += size;
            }
        }
        size /= 2;
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_is_left_out() {
        let mut items: Vec<u32> = (0..100).collect();
        assert!(leave_out(&mut items, |fewer| [3, 70, 71].iter().all(|needed| fewer.contains(needed))));
        assert_eq!(items, [3, 70, 71]);
        assert!(!leave_out(&mut items, |_| false));
    }
}
