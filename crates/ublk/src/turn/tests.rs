//! Turns of a start in each state of a device, and what breaks N6.

use super::*;
use crate::protocol::features;

const VOLUME: u64 = 7;

fn device(state: u16) -> DeviceInfo {
    let mut info = DeviceInfo::new(3, VOLUME, Rules::all());
    (info.state, info.process) = (state, 4);
    info
}

fn turn(state: u16, server_runs: bool, seconds: u64) -> Result<Turn, UblkError> {
    let waited = Duration::from_secs(seconds);
    let found = DeviceState { number: 3, info: Some(device(state)), server_runs, waited, is_ending: false };
    found.next_turn(VOLUME, Rules::all())
}

#[test]
fn a_device_is_made_or_taken_up_or_waited_for() {
    let waited = Duration::from_secs(99);
    let none = DeviceState { number: 3, info: None, server_runs: false, waited, is_ending: false };
    assert_eq!(none.next_turn(VOLUME, Rules::all()).unwrap(), Turn::Make);
    assert_eq!(turn(state::DEAD, false, 0).unwrap(), Turn::Remove);
    assert_eq!(turn(state::QUIESCED, false, 59).unwrap(), Turn::TakeUp);
    assert_eq!(turn(state::LIVE, true, 4).unwrap(), Turn::Wait);
    assert_eq!(turn(state::LIVE, false, 59).unwrap(), Turn::Wait);
    assert_eq!(turn(9, false, 59).unwrap(), Turn::Wait, "a state that is not known");
}

/// A start ends in each state within a limited time, and the message says why.
#[test]
fn each_state_has_a_deadline() {
    for (state, server_runs, seconds, message) in [
        (state::DEAD, false, 61, "a program still has it open"),
        (state::DEAD, true, 61, "a program still has it open"),
        (state::QUIESCED, false, 61, "the kernel gives it to no server"),
        (state::LIVE, false, 61, "the kernel gives it to no server"),
        (9, false, 61, "the kernel gives it to no server"),
        (state::QUIESCED, true, 6, "is served by process 4 already"),
        (state::LIVE, true, 6, "is served by process 4 already"),
    ] {
        let error = turn(state, server_runs, seconds).unwrap_err().to_string();
        assert!(error.contains("/dev/ublkb3 ") && error.contains(message), "{state} {server_runs}: {error}");
    }
}

/// A server that is told to end while it waits for a device ends, and leaves the device as it is.
#[test]
fn a_server_that_is_to_end_waits_for_no_device() {
    let states = [state::DEAD, state::LIVE, state::QUIESCED, 9];
    for info in states.map(|state| Some(device(state))).into_iter().chain([None]) {
        let found =
            DeviceState { number: 3, info, server_runs: true, waited: Duration::ZERO, is_ending: true };
        assert!(matches!(
            found.next_turn(VOLUME, Rules::all()),
            Err(UblkError::StartCancelled { number: 3 })
        ));
    }
}

/// What breaks N6: a device of another volume is not refused, or requests do not come again.
fn breach(mutant: Option<UblkMutant>) -> Option<String> {
    let rules = Rules::but(mutant);
    let made = DeviceInfo::new(3, VOLUME, rules);
    if made.features & features::REISSUE == 0 {
        return Some("requests that were not answered fail".to_owned());
    }
    for state in [state::DEAD, state::LIVE, state::QUIESCED, 9] {
        let mut info = made;
        info.state = state;
        let waited = Duration::ZERO;
        let found = DeviceState { number: 3, info: Some(info), server_runs: false, waited, is_ending: false };
        if let Ok(turn) = found.next_turn(VOLUME + 1, rules) {
            return Some(format!("{turn:?} of another volume's device in state {state}"));
        }
    }
    None
}

#[test]
fn n6_a_device_is_for_its_own_volume_and_its_requests_come_again() {
    assert_eq!(breach(None), None);
}

#[test]
fn n6_a_device_of_another_volume_that_is_taken_up_is_noticed() {
    assert!(breach(Some(UblkMutant::ForeignTakenUp)).unwrap().contains("another volume's device"));
}

#[test]
fn n6_requests_that_do_not_come_again_are_noticed() {
    assert!(breach(Some(UblkMutant::UnansweredFail)).unwrap().contains("not answered"));
}
