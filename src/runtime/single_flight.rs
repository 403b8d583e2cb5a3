//! Single flight: one thread or task does what several want. [`Flight`] is the result that they wait for;
//! [`SingleFlight`] lets one thread at a time make something, and [`Memo`] keeps what was made.

use crate::error::{Error, Result};
use crate::runtime::lock;
use crate::runtime::requester::{abandoned, is_of_others, wait_on};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// The future result of one thread or task, for all threads that want it. Each may give up waiting.
pub struct Flight<T> {
    state: Mutex<Inner<T>>,
    done: Condvar,
}

struct Inner<T> {
    result: Option<Result<T>>,
    /// Threads that wait for it.
    waiting: usize,
    /// Ends the work when nobody waits any more; None for work that then goes on.
    abort: Option<Box<dyn FnOnce() + Send>>,
}

impl<T> Default for Flight<T> {
    /// A flight without a result yet.
    fn default() -> Self {
        Flight {
            state: Mutex::new(Inner {
                result: None,
                waiting: 0,
                abort: None,
            }),
            done: Condvar::new(),
        }
    }
}

impl<T: Clone> Flight<T> {
    /// A flight with a result.
    pub fn arrived(value: T) -> Self {
        let flight = Flight::default();
        flight.finish(Ok(value));
        flight
    }

    /// Calls `abort`, which ends the work, once all waiting threads have given up.
    pub fn abort_when_abandoned(&self, abort: impl FnOnce() + Send + 'static) {
        lock(&self.state).abort = Some(Box::new(abort));
    }

    /// Sets the result for all threads that wait now or later.
    pub fn finish(&self, result: Result<T>) {
        lock(&self.state).result.get_or_insert(result);
        self.done.notify_all();
    }

    /// Waits for the result until `end`. Returns whether it has arrived.
    pub fn arrives_by(&self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        let waited = self
            .done
            .wait_timeout_while(lock(&self.state), left, |state| state.result.is_none());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.result.is_some()
    }

    /// Waits for the result. `Abandoned` if this thread's requester was killed or is to end, or
    /// if the work was ended. Calls `given_up` if this was the last waiting thread and the work is ended.
    pub fn wait(&self, given_up: &dyn Fn()) -> Result<T> {
        let mut state = lock(&self.state);
        state.waiting += 1;
        let result = loop {
            if let Some(result) = &state.result {
                break result.clone();
            }
            match wait_on(&self.done, state) {
                Ok(locked) => state = locked,
                Err(error) => {
                    state = lock(&self.state);
                    break state.result.clone().unwrap_or(Err(error));
                }
            }
        };
        state.waiting -= 1;
        if state.waiting == 0
            && state.result.is_none()
            && let Some(abort) = state.abort.take()
        {
            state.result = Some(Err(abandoned()));
            drop(state);
            abort();
            given_up();
            self.done.notify_all();
        }
        result
    }
}

/// Lets one thread at a time make something that others want as well. Unlike a lock, waiting ends when the
/// [requester](crate::runtime::requester) is to end; and if the thread fails, those that waited
/// for it fail with the same error, instead of one failure after the other.
#[derive(Default)]
pub struct SingleFlight {
    current: Mutex<Option<Arc<Flight<()>>>>,
}

/// What a thread does that wants something made.
enum Begun {
    /// It makes it itself.
    Own(Arc<Flight<()>>),
    /// It has waited for another; with the failure of that, unless it was of that thread alone.
    Waited(Option<Error>),
}

/// Ends the flight, also where there was a panic: then those who waited try it themselves.
struct Flying<'f> {
    of: &'f SingleFlight,
    flight: Arc<Flight<()>>,
    result: Result<()>,
}

impl Drop for Flying<'_> {
    fn drop(&mut self) {
        *lock(&self.of.current) = None;
        self.flight.finish(self.result.clone());
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
        let mut failure = None;
        loop {
            if let Some(found) = find() {
                return Ok(found);
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
            match self.begin() {
                Begun::Own(flight) => return self.fly(flight, find, make),
                Begun::Waited(other) => failure = other,
            }
        }
    }

    /// The flight of this thread, if nobody flies; else waits for the other. Not a part of `find_or_make`,
    /// which is compiled for each kind of value.
    fn begin(&self) -> Begun {
        let mut current = lock(&self.current);
        let Some(flight) = current.clone() else {
            return Begun::Own(current.insert(Arc::default()).clone());
        };
        drop(current);
        let failure = flight.wait(&|| ()).err();
        Begun::Waited(failure.filter(|failure| !is_of_others(failure)))
    }

    fn fly<T>(
        &self,
        flight: Arc<Flight<()>>,
        find: impl Fn() -> Option<T>,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut flying = Flying {
            of: self,
            flight,
            result: Ok(()),
        };
        // It may be there since.
        let made = find().map_or_else(make, Ok);
        if let Err(failure) = &made {
            flying.result = Err(failure.clone());
        }
        made
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

    /// The value, which `make` makes if nobody has. `Abandoned` if the requester is to end while
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
    use crate::error::Error;
    use crate::runtime::requester::{ended, on_behalf_of};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    #[test]
    fn waiting_and_later_threads_get_the_result() {
        let flight = Arc::new(Flight::default());
        let waiting: Vec<_> = (0..3)
            .map(|_| flight.clone())
            .map(|flight| std::thread::spawn(move || flight.wait(&|| ())))
            .collect();
        flight.finish(Ok(7));
        for thread in waiting {
            assert_eq!(thread.join().unwrap().unwrap(), 7);
        }
        assert_eq!(flight.wait(&|| ()).unwrap(), 7);
    }

    #[test]
    fn the_work_ends_when_the_last_thread_gives_up() {
        let flight: Flight<u8> = Flight::default();
        let (aborted, given_up) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
        let abort = aborted.clone();
        flight.abort_when_abandoned(move || abort.store(true, Ordering::Relaxed));
        let error = on_behalf_of(ended(), || {
            flight
                .wait(&|| given_up.store(true, Ordering::Relaxed))
                .unwrap_err()
        });
        assert_eq!(error.errno(), libc::EINTR);
        assert!(given_up.load(Ordering::Relaxed) && aborted.load(Ordering::Relaxed));
        // A later thread is not interrupted, but learns that the others were.
        assert!(is_of_others(&flight.wait(&|| ()).unwrap_err()));
    }

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
            Err::<(), _>(Error::corrupt("bad"))
        };
        let waiting = || lock(&lock(&flight.current).clone().unwrap().state).waiting;
        let fail_with_others = || {
            while waiting() < 7 {
                thread::yield_now();
            }
            fail()
        };
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert!(flight.find_or_make(|| None, fail_with_others).is_err()));
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
            let error = on_behalf_of(ended(), || flight.find_or_make(|| None::<()>, || Ok(()))).unwrap_err();
            assert_eq!(error.errno(), libc::EINTR);
            // One that found nobody waiting any more is tried again by the others.
            let other = scope.spawn(|| flight.find_or_make(|| None, || Ok(1)));
            go_on.wait();
            assert!(working.join().is_err());
            assert_eq!(other.join().unwrap().unwrap(), 1);
        });
    }
}
