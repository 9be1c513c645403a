//! Power cuts while a filesystem recovers: whatever the first recovery has done by then, the next one finds the same.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use weir_runtime::Random;

use super::cut::Cut;
use super::found::Found;
use super::judge::{Defect, Judge, JudgedBy};
use crate::bound::in_new_runtime;
use crate::content::mix;
use crate::fs::ground::{Ground, Left, MayLeave};
use crate::fs::run::mount;
use crate::fs::visible::Visible;

impl Judge {
    /// Judges what a power cut now may leave: all of it if that are few states, otherwise some that are drawn. `seen` has the
    /// states that were judged before.
    fn judge_recovery_event(
        &self,
        may_leave: &MayLeave<'_>,
        (origin, expected): (u64, &Found),
        random: &mut Random,
        seen: &mut BTreeSet<u64>,
    ) -> Result<(), String> {
        let few = may_leave.states().filter(|states| states.count() <= u128::from(self.setup.exhaustive_max));
        let left: Vec<Left> = match few {
            Some(states) => states.names().filter_map(|kept| may_leave.named(&kept)).collect(),
            None => (0..self.setup.samples).map(|_| may_leave.draw(random)).collect(),
        };
        left.iter().filter(|left| seen.insert(left.hash())).try_for_each(|left| {
            match self.recoveries.find(left, origin) {
                Ok(found) if found.0 == expected.0 => Ok(()),
                Ok(_) => {
                    Err("the next recovery finds other content than the first recovery without that cut"
                        .to_owned())
                }
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

impl Cut {
    /// Powers up, and cuts the power again, on copies, at every event of the storage until the filesystem is mounted and
    /// read. Each of these states has to recover to what is found without the second cut. Returns how many different states
    /// there were. What a device's firmware or a volume does to recover is over by then.
    ///
    /// # Errors
    /// What is a [`Defect`].
    pub fn cut_recovery(&self) -> Result<u64, Defect> {
        let expected = self.recover()?;
        let origin = mix(mix(self.origin, self.hash()), 5);
        let judge = Rc::clone(&self.judge);
        let recovered = in_new_runtime(origin, async |handle| {
            let ground =
                Ground::from_left(&self.left, handle, None).await.map_err(|error| error.to_string())?;
            let (random, seen) = (RefCell::new(handle.random("cut")), Rc::new(RefCell::new(BTreeSet::new())));
            let (event, defect) = (Cell::new(0), Rc::new(RefCell::new(None)));
            let (states, first, without_cut) = (Rc::clone(&seen), Rc::clone(&defect), expected.clone());
            ground.observe_states(move |may_leave| {
                event.set(event.get() + 1);
                let first = &mut *first.borrow_mut();
                if first.is_some() {
                    return;
                }
                let (random, states) = (&mut random.borrow_mut(), &mut states.borrow_mut());
                let judged = judge.judge_recovery_event(may_leave, (origin, &without_cut), random, states);
                *first = judged
                    .err()
                    .map(|what| format!("power is cut at event {} of the recovery: {what}", event.get()));
            });
            let fs = mount(handle, &ground, self.judge.setup.options, None).await?;
            let visible = Visible::read(&fs).await.map_err(|error| format!("reading: {error}"))?;
            ground.rest();
            match defect.take() {
                Some(defect) => Err(defect),
                None if visible != *expected.0 => {
                    Err("two recoveries of one state found different content".to_owned())
                }
                None => Ok(seen.borrow().len() as u64),
            }
        });
        recovered.map_err(|what| Defect::new(JudgedBy::SecondRecovery, what))
    }
}
