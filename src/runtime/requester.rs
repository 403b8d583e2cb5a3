//! The requester: whom a thread works for, and whether they still wait.

use crate::error::{Error, ErrorKind, Result};
use std::cell::RefCell;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often a waiting thread checks whether it still should.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

thread_local! {
    static REQUESTER: RefCell<Requester> = const { RefCell::new(Requester::Unknown) };
}

/// Whom a thread works for.
#[derive(Debug, Clone, Default)]
pub enum Requester {
    /// It is not known, so it is never gone.
    #[default]
    Unknown,
    /// A thread, of another process as a rule, by its id.
    Thread(u32),
    /// A client of a connection, who is gone once this is set.
    Client(Arc<AtomicBool>),
}

impl From<u32> for Requester {
    /// The thread of this id; unknown for 0, and if there never was a thread of a given id: then ids may be those
    /// of another PID namespace.
    fn from(thread: u32) -> Requester {
        static ARE_OURS: AtomicBool = AtomicBool::new(false);
        Requester::of(thread, &ARE_OURS)
    }
}

impl Requester {
    /// `are_ours` is whether there was a thread of an id: one that is not there has ended since it asked.
    fn of(thread: u32, are_ours: &AtomicBool) -> Requester {
        if thread == 0 {
            return Requester::Unknown;
        }
        if exists(thread) {
            are_ours.store(true, Ordering::Relaxed);
        }
        match are_ours.load(Ordering::Relaxed) {
            true => Requester::Thread(thread),
            false => Requester::Unknown,
        }
    }
}

impl PartialEq for Requester {
    fn eq(&self, other: &Requester) -> bool {
        match (self, other) {
            (Requester::Unknown, Requester::Unknown) => true,
            (Requester::Thread(one), Requester::Thread(other)) => one == other,
            (Requester::Client(one), Requester::Client(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// Whom this thread works for.
pub fn requester() -> Requester {
    REQUESTER.with_borrow(Requester::clone)
}

/// Works for `requester`.
pub fn on_behalf_of<T>(requester: impl Into<Requester>, work: impl FnOnce() -> T) -> T {
    let before = REQUESTER.replace(requester.into());
    let result = work();
    REQUESTER.set(before);
    result
}

/// Whether there is a thread of this id. Unlike /proc, which may hide threads of others, and unlike kill(2), a
/// priority is told to everybody, and fast.
fn exists(thread: u32) -> bool {
    // SAFETY: takes no pointers. The system call itself, unlike the function, has no negative results but errors.
    unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, thread) >= 0 }
}

/// The signals of `masks`, lines of what the system says of a thread, as bits from 0 on; None where it says
/// nothing.
fn signals(status: &str, mask: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(mask))?;
    u64::from_str_radix(line.strip_prefix(':')?.trim(), 16).ok()
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Whether a requester needs no answer: a client who is gone, or a thread that has been killed and only waits for an
/// answer before it ends. The kernel lets that wait and does not tell us, so its pending signals are read from /proc.
pub fn is_gone(requester: &Requester) -> bool {
    match requester {
        Requester::Unknown => false,
        Requester::Client(gone) => gone.load(Ordering::Relaxed),
        Requester::Thread(thread) => {
            let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status")) else {
                return !exists(*thread);
            };
            signals(&status, "SigPnd").is_some_and(|pending| pending & bit(libc::SIGKILL) != 0)
        }
    }
}

/// Whether a requester is gone, or is a thread that has a signal to handle as soon as it has its answer.
pub fn is_interrupted(requester: &Requester) -> bool {
    let Requester::Thread(thread) = requester else {
        return is_gone(requester);
    };
    let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status")) else {
        return !exists(*thread);
    };
    let of = |mask| signals(&status, mask).unwrap_or(0);
    // These only stop and continue it, which is no reason to give up.
    let stops = [
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGCONT,
    ];
    let stops = stops.into_iter().map(bit).fold(0, |all, signal| all | signal);
    (of("SigPnd") | of("ShdPnd")) & !of("SigBlk") & !of("SigIgn") & !stops != 0
}

/// Waits until `done` is notified, or for a moment. `Abandoned`, with the lock released, if the requester
/// has a signal to handle or is gone.
pub fn wait_on<'m, T>(done: &Condvar, locked: MutexGuard<'m, T>) -> Result<MutexGuard<'m, T>> {
    let waited = done.wait_timeout(locked, CHECK_INTERVAL);
    let (locked, waited) = waited.unwrap_or_else(PoisonError::into_inner);
    match waited.timed_out() && is_interrupted(&requester()) {
        true => Err(abandoned()),
        false => Ok(locked),
    }
}

/// Does `work` in a new thread and waits for it. `Abandoned` if the requester has a signal to handle; the
/// work then goes on, and its result is dropped.
pub fn on_another_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let (sender, answer) = channel();
    thread::spawn(move || sender.send(work()));
    loop {
        match answer.recv_timeout(CHECK_INTERVAL) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if is_interrupted(&requester()) => return Err(abandoned()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::internal("a thread panicked; this is a bug"));
            }
        }
    }
}

/// What whoever gave up gets.
pub fn abandoned() -> Error {
    Error::new(
        ErrorKind::Abandoned,
        "stopped, because nobody waits for the result any more",
    )
}

/// Whether `error` means that another requester gave up, not this thread's: then the work is tried again.
pub fn is_of_others(error: &Error) -> bool {
    error.kind() == ErrorKind::Abandoned && !is_interrupted(&requester())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_requester_that_was_there_can_be_gone() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let id = child.id();
        on_behalf_of(id, || {
            assert_eq!(requester(), Requester::Thread(id));
            assert!(!is_gone(&requester()) && !is_interrupted(&requester()));
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(is_gone(&requester()) && is_interrupted(&requester()));
        });
        // It may have asked before.
        assert!(is_gone(&Requester::from(id)));
        // As the id of a thread in another PID namespace.
        let other = Requester::of(id, &AtomicBool::new(false));
        assert_eq!(other, Requester::Unknown);
        assert!(!is_gone(&other) && !is_interrupted(&other));
        assert_eq!(Requester::from(0), Requester::Unknown);
    }

    #[test]
    fn threads_are_found_by_their_ids() {
        // SAFETY: has no arguments.
        let own = || unsafe { libc::gettid() } as u32;
        assert!(exists(own()) && exists(1));
        assert_eq!(
            thread::spawn(move || (exists(own()), own() == std::process::id()))
                .join()
                .unwrap(),
            (true, false)
        );
        assert!(!exists(u32::MAX) && !exists(i32::MAX as u32));
    }
}
