//! Crashes under a replica: of the writer, of the uploader, and of the machine, while the store loses answers and goes down. At
//! every change of the store, and at some events of the disk, what both hold is judged, as if everything had ended there:
//!
//! - The store restores to the state after one request, whole, and no older than the uploader has said.
//! - What a power cut may leave of the disk has that request, and all before it.
//! - What a flush through the store covers, when it was acknowledged, the store has.
//! - States of the time that is kept can be restored, and each other one that can be is right.
//! - From some states a recovered volume goes on: it catches up, and the store has what it has.
//!
//! - A restore that runs meanwhile is right, or ends with an error; some of them are crashed.
//!
//! A machine that was given up for dead may go on shipping what it has while the next one takes over. Or it is cut off from the
//! store, writes on, and returns when the next one has shipped: nothing that it writes then may be acknowledged as shipped. That is
//! tried of machines that return before what the next one has made is [too old to be kept](weir_replica::ReplicaOptions::keep).

mod judge;
mod life;
mod link;
mod model;

use weir_replica::ReplicaRules;
use weir_storage::Rules;
use weir_volume::VolumeRules;

use crate::campaign::{Campaign, Plan, Run, counts};
use life::ReplicaRun;

/// A campaign on replicas.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaCampaign {
    /// How long it is.
    pub plan: Plan,
    /// The store replaces objects although it is asked not to: the negative control.
    pub replaces_objects: bool,
    /// The rules of the replica, and of the volume.
    pub rules: (ReplicaRules, VolumeRules),
}

impl ReplicaCampaign {
    /// A campaign on a store that keeps its contract.
    #[must_use]
    pub fn new(plan: Plan) -> ReplicaCampaign {
        ReplicaCampaign { plan, replaces_objects: false, rules: (Rules::all(), Rules::all()) }
    }
}

counts! {
    /// What a campaign did.
    pub struct ReplicaTotals {
        /// Runs.
        pub runs: u64,
        /// Times that a machine began.
        pub lives: u64,
        /// Of these, with the machine before still shipping.
        pub takeovers: u64,
        /// Of these machines before, those that were cut off, and returned when the next one had shipped.
        pub returned: u64,
        /// Restores that were crashed.
        pub restorers_ended: u64,
        /// Uploaders that were ended without their machine.
        pub uploaders_ended: u64,
        /// Flushes that waited for the store.
        pub remote_flushes: u64,
        /// Requests to the volumes.
        pub requests: u64,
        /// Moments at which what is left was judged, some of which left the same.
        pub cuts: u64,
        /// Different states of store and disk together.
        pub states_distinct: u64,
        /// Of these, with a catch-up under way.
        pub states_catching_up: u64,
        /// Of these, from which a recovered volume went on.
        pub states_continued: u64,
        /// Restores that were compared with the requests.
        pub restores: u64,
        /// Changes of the store that deleted an object.
        pub collected: u64,
    }
}

impl Campaign for ReplicaCampaign {
    type Totals = ReplicaTotals;
    type Beginning = ();

    fn plan(&self) -> Plan {
        self.plan
    }

    fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    fn play_run(&self, (): &(), _number: u64, seed: u64) -> Run<ReplicaTotals> {
        ReplicaRun::play(self, seed)
    }
}
