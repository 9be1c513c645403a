//! The rules that a part of Weir keeps: all of them in the product. A *mutant* drops one, to prove that tests notice.

use std::marker::PhantomData;

/// The rules of one crate, where `M` names those that a mutant can drop. Without the feature `mutants` this holds
/// nothing, no mutant can be chosen, and [`drops`](Rules::drops) is a constant.
pub struct Rules<M> {
    #[cfg(feature = "mutants")]
    dropped: Option<M>,
    mutants: PhantomData<M>,
}

impl<M> Rules<M> {
    /// All rules are kept.
    pub const fn all() -> Rules<M> {
        Rules {
            #[cfg(feature = "mutants")]
            dropped: None,
            mutants: PhantomData,
        }
    }
}

#[cfg(feature = "mutants")]
impl<M: Copy + PartialEq> Rules<M> {
    /// All rules are kept but the one that `mutant` names.
    pub const fn but(mutant: Option<M>) -> Rules<M> {
        Rules { dropped: mutant, mutants: PhantomData }
    }

    /// Whether the rule that `mutant` names is dropped.
    pub fn drops(&self, mutant: M) -> bool {
        self.dropped == Some(mutant)
    }

    /// The rules of a part, of which this is the whole.
    pub fn of_part<P>(&self, part: impl FnOnce(M) -> Option<P>) -> Rules<P> {
        Rules { dropped: self.dropped.and_then(part), mutants: PhantomData }
    }
}

#[cfg(not(feature = "mutants"))]
impl<M> Rules<M> {
    /// Whether the rule that `mutant` names is dropped: never, outside tests.
    pub const fn drops(&self, _: M) -> bool
    where
        M: Copy,
    {
        false
    }
}

impl<M> Default for Rules<M> {
    fn default() -> Rules<M> {
        Rules::all()
    }
}

impl<M: Copy> Copy for Rules<M> {}

impl<M: Copy> Clone for Rules<M> {
    fn clone(&self) -> Rules<M> {
        *self
    }
}

impl<M: PartialEq> PartialEq for Rules<M> {
    #[cfg(feature = "mutants")]
    fn eq(&self, other: &Rules<M>) -> bool {
        self.dropped == other.dropped
    }

    #[cfg(not(feature = "mutants"))]
    fn eq(&self, _: &Rules<M>) -> bool {
        true
    }
}

impl<M: Eq> Eq for Rules<M> {}

impl<M: std::fmt::Debug> std::fmt::Debug for Rules<M> {
    #[cfg(feature = "mutants")]
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.dropped {
            Some(mutant) => write!(f, "all but {mutant:?}"),
            None => f.write_str("all"),
        }
    }

    #[cfg(not(feature = "mutants"))]
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("all")
    }
}
