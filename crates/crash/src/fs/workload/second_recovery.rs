//! Power cuts while a filesystem recovers: whatever the first recovery has done by then, the next one finds the same.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use weir_runtime::Random;

use super::cut::Cut;
use super::found::Found;
use super::judge::{Judge, JudgedBy, Wrong};
use crate::content::mix;
use crate::fs::ground::{Left, MayLeave};
use crate::fs::run::{in_new_runtime, mount};
use crate::fs::visible::Visible;

/// What the cuts of one recovery have left so far.
struct Second {
    judge: Rc<Judge>,
    /// Stands for the state that is recovered.
    origin: u64,
    /// What the first recovery finds, when no power is cut.
    expected: Found,
    random: Random,
    events: u64,
    states: BTreeSet<u64>,
    wrong: Option<Wrong>,
}

impl Second {
    /// Judges what a power cut now may leave: all of it if that are few states, otherwise some that are drawn.
    fn at_event(&mut self, may_leave: &MayLeave<'_>) {
        self.events += 1;
        if self.wrong.is_some() {
            return;
        }
        let setup = self.judge.setup;
        let few = may_leave.states().filter(|states| states.count() <= u128::from(setup.exhaustive_max));
        let left: Vec<Left> = match few {
            Some(states) => states.names().filter_map(|kept| may_leave.named(&kept)).collect(),
            None => (0..setup.samples).map(|_| may_leave.draw(&mut self.random)).collect(),
        };
        self.wrong = left.iter().find_map(|left| self.judge(left).err());
    }

    fn judge(&mut self, left: &Left) -> Result<(), Wrong> {
        if !self.states.insert(left.hash()) {
            return Ok(());
        }
        let wrong = |what: &str| {
            let what = format!("power is cut at event {} of the recovery: {what}", self.events);
            Wrong::new(JudgedBy::SecondRecovery, what)
        };
        match self.judge.recoveries.find(left, self.origin) {
            Ok(found) if found.0 == self.expected.0 => Ok(()),
            Ok(_) => Err(wrong("the next one finds something else than the first without that cut")),
            Err(error) => Err(wrong(&error.to_string())),
        }
    }
}

impl Cut {
    /// Powers up, and cuts the power again, on copies, at every event of the storage until the filesystem is mounted and
    /// read. Each of these states has to recover to what is found without the second cut. How many different ones there
    /// were. What a device's firmware or a volume does to recover is over by then.
    ///
    /// # Errors
    /// What is [`Wrong`].
    pub fn cut_recovery(&self) -> Result<u64, Wrong> {
        let expected = self.look()?;
        let origin = mix(mix(self.origin, self.hash()), 5);
        let judge = Rc::clone(&self.judge);
        let recovered = in_new_runtime(origin, async |handle| {
            let ground = self.left.power_up(handle).await.map_err(|error| error.to_string())?;
            let second = Rc::new(RefCell::new(Second {
                judge,
                origin,
                expected: expected.clone(),
                random: handle.random("cut"),
                events: 0,
                states: BTreeSet::new(),
                wrong: None,
            }));
            let told = Rc::clone(&second);
            ground.observe_states(move |may_leave| told.borrow_mut().at_event(may_leave));
            let fs = mount(handle, &ground, self.judge.setup.options, None).await?;
            let visible = Visible::read(&fs).await.map_err(|error| format!("reading: {error}"))?;
            ground.rest();
            let second = &*second.borrow();
            let same = visible == *expected.0;
            Ok::<_, String>((same, second.states.len() as u64, second.wrong.clone()))
        });
        let wrong = |what: &str| Wrong::new(JudgedBy::SecondRecovery, what);
        match recovered.map_err(|what| wrong(&what))? {
            (_, _, Some(wrong)) => Err(wrong),
            (false, ..) => Err(wrong("recovery does not do the same every time")),
            (true, states, None) => Ok(states),
        }
    }
}
