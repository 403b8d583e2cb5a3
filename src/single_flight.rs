//! Single flight: one thread does what several want; and a memo that is filled in that way.

use crate::error::{Error, Result};
use crate::lock::lock;
use crate::requester::{is_of_others, wait_on};
use std::sync::{Condvar, Mutex};

/// Lets one thread at a time make something that others want as well. Unlike a lock, waiting ends when the
/// [requester](crate::requester) has a signal to handle; and if the thread fails, those that waited for it
/// fail with the same error, instead of one failure after the other.
#[derive(Default)]
pub struct SingleFlight {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Default)]
struct State {
    flying: bool,
    /// How many flights are over.
    number: u64,
    /// Why the last one failed; None where it did not.
    failure: Option<Error>,
}

/// Ends the flight, also where there was a panic.
struct Flying<'f> {
    flight: &'f SingleFlight,
    failure: Option<Error>,
}

impl Drop for Flying<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.flight.state);
        state.flying = false;
        state.number = state.number.wrapping_add(1);
        state.failure = self.failure.take();
        drop(state);
        self.flight.over.notify_all();
    }
}

impl SingleFlight {
    /// What `find` finds, or else what `make` makes, one thread at a time. `Abandoned` if the requester has a
    /// signal to handle while this thread waits.
    pub fn find_or_make<T>(
        &self,
        find: impl Fn() -> Option<T>,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if let Some(found) = find() {
            return Ok(found);
        }
        let mut state = lock(&self.state);
        while state.flying {
            let awaited = state.number;
            while state.flying && state.number == awaited {
                state = wait_on(&self.over, state)?;
            }
            if let Some(found) = find() {
                return Ok(found);
            }
            let failure = state.failure.as_ref();
            if let Some(failure) = failure.filter(|failure| !is_of_others(failure)) {
                return Err(failure.clone());
            }
        }
        state.flying = true;
        drop(state);
        let mut flight = Flying {
            flight: self,
            failure: None,
        };
        // It may be there since.
        match find() {
            Some(found) => Ok(found),
            None => make(),
        }
        .inspect_err(|error| flight.failure = Some(error.clone()))
    }
}

/// A value that is made when it is first wanted, by one thread. A failure is not remembered.
pub struct Memo<T> {
    value: Mutex<Option<T>>,
    making: SingleFlight,
}

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Memo {
            value: Mutex::new(None),
            making: SingleFlight::default(),
        }
    }
}

impl<T: Clone> Memo<T> {
    /// The value, if it has been made.
    pub fn get(&self) -> Option<T> {
        lock(&self.value).clone()
    }

    /// The value, which `make` makes if nobody has. `Abandoned` if the requester has a signal to handle while
    /// this thread waits for another.
    pub fn get_or_make(&self, make: impl FnOnce() -> Result<T>) -> Result<T> {
        self.making.find_or_make(
            || self.get(),
            || make().inspect(|value| *lock(&self.value) = Some(value.clone())),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requester::on_behalf_of;
    use std::sync::Barrier;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn one_makes_what_all_find() {
        let (memo, count) = (Memo::default(), Mutex::new(0));
        assert_eq!(memo.get(), None);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let got = memo.get_or_make(|| {
                        thread::sleep(Duration::from_millis(20));
                        *count.lock().unwrap() += 1;
                        Ok(7)
                    });
                    assert_eq!(got.unwrap(), 7);
                });
            }
        });
        assert_eq!(*count.lock().unwrap(), 1);
    }

    #[test]
    fn a_failure_is_that_of_all_who_waited_and_of_nobody_else() {
        let (flight, count) = (SingleFlight::default(), Mutex::new(0));
        let fail = || {
            *count.lock().unwrap() += 1;
            thread::sleep(Duration::from_millis(300));
            Err::<(), _>(Error::corrupt("bad"))
        };
        let together = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    together.wait();
                    assert!(flight.find_or_make(|| None, fail).is_err());
                });
            }
        });
        assert_eq!(*count.lock().unwrap(), 1);
        assert!(flight.find_or_make(|| None, fail).is_err());
        assert_eq!(*count.lock().unwrap(), 2);
        assert!(flight.find_or_make(|| None, || Ok(())).is_ok());
    }

    #[test]
    fn who_is_interrupted_waits_no_longer_and_a_panic_ends_a_flight() {
        let flight = SingleFlight::default();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let (begun, go_on) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            let working = scope.spawn(|| {
                flight.find_or_make(
                    || None::<()>,
                    || {
                        begun.wait();
                        go_on.wait();
                        panic!("on purpose")
                    },
                )
            });
            begun.wait();
            let started = Instant::now();
            let error =
                on_behalf_of(ended.id(), || flight.find_or_make(|| None::<()>, || Ok(()))).unwrap_err();
            assert_eq!(error.errno(), libc::EINTR);
            assert!(started.elapsed() < Duration::from_secs(1));
            // One that found nobody waiting any more is tried again by the others.
            let other = scope.spawn(|| flight.find_or_make(|| None, || Ok(1)));
            go_on.wait();
            assert!(working.join().is_err());
            assert_eq!(other.join().unwrap().unwrap(), 1);
        });
    }
}
