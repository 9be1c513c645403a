//! A failing sequence made shorter, by delta debugging (Zeller and Hildebrandt, *Simplifying and Isolating Failure-Inducing
//! Input*, IEEE TSE 2002): parts are left out, halves first, until no part can be.

/// Leaves out parts of `items` as long as `fails` says that the rest still fails, and ends when it has no answer; whether any
/// part was left out.
pub fn leave_out<T: Clone>(items: &mut Vec<T>, mut fails: impl FnMut(&[T]) -> Option<bool>) -> bool {
    let mut any = false;
    let mut size = items.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        while from < items.len() {
            let mut fewer = items.clone();
            fewer.drain(from..(from + size).min(fewer.len()));
            match fails(&fewer) {
                Some(true) => (*items, any) = (fewer, true),
                Some(false) => from += size,
                None => return any,
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
        let fails = |fewer: &[u32]| Some([3, 70, 71].iter().all(|needed| fewer.contains(needed)));
        assert!(leave_out(&mut items, fails));
        assert_eq!(items, [3, 70, 71]);
        assert!(!leave_out(&mut items, |_| Some(false)));
    }

    #[test]
    fn a_search_without_an_answer_ends() {
        let (mut items, mut trials) = (vec![0; 100], 2);
        let left_out = leave_out(&mut items, |_| {
            trials -= 1;
            (trials >= 0).then_some(false)
        });
        assert_eq!(
            (left_out, items.len(), trials),
            (false, 100, -1),
            "asked once more, and not for each part"
        );
    }
}
