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
    /// A thread that may end before its request is answered, to its process.
    Asynchronous {
        /// Its id.
        thread: u32,
        /// That of its process.
        process: u32,
    },
    /// A client of a connection, who is gone once this is set.
    Client(Arc<AtomicBool>),
}

impl From<u32> for Requester {
    /// The thread of this id; unknown for 0, and if there never was a thread of a given id: then ids may be
    /// those of another PID namespace.
    fn from(thread: u32) -> Requester {
        static ARE_OURS: AtomicBool = AtomicBool::new(false);
        Requester::of(thread, &ARE_OURS)
    }
}

impl Requester {
    /// The thread of this id, which may end before it has its answer; unknown if it has. Unlike
    /// [`Requester::from`], asks /proc.
    pub fn asynchronous(thread: u32) -> Requester {
        match Requester::from(thread) {
            Requester::Thread(thread) => match process_of(thread) {
                Some(process) => Requester::Asynchronous { thread, process },
                None if exists(thread) => Requester::Thread(thread),
                None => Requester::Unknown,
            },
            unknown => unknown,
        }
    }

    /// The ids of a thread, and of the process that waits after the thread has ended.
    fn ids(&self) -> Option<(u32, u32)> {
        match *self {
            Requester::Thread(thread) => Some((thread, thread)),
            Requester::Asynchronous { thread, process } => Some((thread, process)),
            Requester::Unknown | Requester::Client(_) => None,
        }
    }

    /// `are_ours` is whether there was a thread of an id: one that is not there has ended since it asked.
    fn of(thread: u32, are_ours: &AtomicBool) -> Requester {
        if thread == 0 {
            return Requester::Unknown;
        }
        if !are_ours.load(Ordering::Relaxed) {
            if !exists(thread) {
                return Requester::Unknown;
            }
            are_ours.store(true, Ordering::Relaxed);
        }
        Requester::Thread(thread)
    }
}

impl PartialEq for Requester {
    fn eq(&self, other: &Requester) -> bool {
        match (self, other) {
            (Requester::Unknown, Requester::Unknown) => true,
            (Requester::Client(one), Requester::Client(other)) => Arc::ptr_eq(one, other),
            _ => self.ids().is_some() && self.ids() == other.ids(),
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

/// Whether there is a thread of this id. Unlike /proc, which may hide threads of others, and unlike kill(2),
/// a priority is told to everybody, and fast.
fn exists(thread: u32) -> bool {
    // SAFETY: takes no pointers. The system call itself, unlike the function, has no negative results but
    // errors.
    unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, thread) >= 0 }
}

/// What the system says of a thread, as lines; None if it says nothing.
fn status(thread: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{thread}/status")).ok()
}

/// The number in a line of a status; None if there is no such line.
fn number(status: &str, line: &str, radix: u32) -> Option<u64> {
    let line = status.lines().find_map(|other| other.strip_prefix(line))?;
    u64::from_str_radix(line.strip_prefix(':')?.trim(), radix).ok()
}

/// The process of a thread, where /proc tells it.
fn process_of(thread: u32) -> Option<u32> {
    number(&status(thread)?, "Tgid", 10)?.try_into().ok()
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

fn bits<const N: usize>(signals: [i32; N]) -> u64 {
    signals.into_iter().map(bit).fold(0, |all, signal| all | signal)
}

/// Whether a requester needs no answer: a client who is gone, or a thread that has been killed and only waits
/// for an answer before it ends. The kernel lets that wait and does not tell us, so its pending signals are
/// read from /proc.
pub fn is_gone(requester: &Requester) -> bool {
    has_ended_or(requester, is_killed)
}

fn is_killed(status: &str) -> bool {
    let pending = ["SigPnd", "ShdPnd"].map(|mask| number(status, mask, 16).unwrap_or(0));
    (pending[0] | pending[1]) & bit(libc::SIGKILL) != 0
}

/// Whether a requester is gone, or is a thread that is to end as soon as it has its answer: it has a signal
/// that ends it, or one that asks its program to end.
fn is_interrupted(requester: &Requester) -> bool {
    has_ended_or(requester, is_to_stop)
}

/// Whether a requester is gone, or is a thread of whose status this is true.
fn has_ended_or(requester: &Requester, is_true: impl FnOnce(&str) -> bool) -> bool {
    let Some((thread, process)) = requester.ids() else {
        return matches!(requester, Requester::Client(gone) if gone.load(Ordering::Relaxed));
    };
    match status(thread) {
        Some(status) => is_true(&status),
        None if exists(thread) => false,
        None => match self::status(process) {
            Some(status) => is_killed(&status),
            None => !exists(process),
        },
    }
}

/// Whether a thread of this status has a signal that ends it, or one that asks its program to end.
fn is_to_stop(status: &str) -> bool {
    let of = |mask| number(status, mask, 16).unwrap_or(0);
    // These only stop and continue it, which is no reason to give up.
    let stops = bits([
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGCONT,
    ]);
    // After a handler of another signal (of a timer, a child, a window) most programs go on, and expect that
    // reads do, too.
    let requests = bits([libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGHUP]);
    let (own, shared, caught) = (of("SigPnd"), of("ShdPnd"), of("SigCgt"));
    // The system prefers the first thread of a process for those that any may handle.
    let is_first = number(status, "Tgid", 10) == number(status, "Pid", 10);
    let handled = if is_first { own | shared } else { own };
    let pending = (own | shared) & !caught | handled & caught & requests;
    pending & !of("SigBlk") & !of("SigIgn") & !stops != 0
}

/// Waits until `done` is notified, or for a moment. `Abandoned`, with the lock released, if the requester
/// is to end or is gone.
pub fn wait_on<'m, T>(done: &Condvar, locked: MutexGuard<'m, T>) -> Result<MutexGuard<'m, T>> {
    let waited = done.wait_timeout(locked, CHECK_INTERVAL);
    let (locked, waited) = waited.unwrap_or_else(PoisonError::into_inner);
    match waited.timed_out() && is_interrupted(&requester()) {
        true => Err(abandoned()),
        false => Ok(locked),
    }
}

/// Does `work` in a new thread and waits for it. `Abandoned` if the requester is to end; the
/// work then goes on, and its result is dropped.
pub fn on_another_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let (sender, answer) = channel();
    let started = thread::Builder::new().spawn(move || sender.send(work()));
    started.map_err(|e| Error::io(&e))?;
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

/// `result`, to be shown or kept. Fails if its requester gave up: that tells others nothing.
pub fn settled<T>(result: Result<T>) -> Result<Result<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::Abandoned => Err(error),
        settled => Ok(settled),
    }
}

/// Whether `error` means that another requester gave up, not this thread's: then the work is tried again.
pub fn is_of_others(error: &Error) -> bool {
    error.kind() == ErrorKind::Abandoned && !is_interrupted(&requester())
}

/// A process that has ended since it asked: what is done on its behalf is given up.
#[cfg(test)]
pub(crate) fn ended() -> Requester {
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    Requester::Thread(ended.id())
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
    fn caught_signals_count_if_they_ask_to_end() {
        let status = |thread: u32, own: u64, shared: u64, caught: u64| {
            let masks = format!("SigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigCgt:\t{caught:016x}\n");
            is_to_stop(&format!("Tgid:\t7\nPid:\t{thread}\n{masks}"))
        };
        let (int, alarm) = (bit(libc::SIGINT), bit(libc::SIGALRM));
        for thread in [7, 8] {
            assert!(status(thread, int, 0, int) && status(thread, alarm, 0, 0));
            assert!(status(thread, 0, int, 0) && status(thread, 0, alarm, int));
            assert!(!status(thread, alarm, alarm, alarm | int));
            assert!(!status(thread, 0, bit(libc::SIGTSTP), 0));
        }
        // Another thread handles it.
        assert!(status(7, 0, int, int) && !status(8, 0, int, int));
    }

    #[test]
    fn a_thread_that_has_ended_may_have_asked_for_its_process() {
        // SAFETY: has no arguments.
        let asked = || Requester::asynchronous(unsafe { libc::gettid() } as u32);
        let of_other = thread::spawn(asked).join().unwrap();
        assert!(matches!(of_other, Requester::Asynchronous { process, .. } if process == std::process::id()));
        assert!(!is_gone(&of_other) && !is_interrupted(&of_other));
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let of_child = Requester::asynchronous(child.id());
        assert!(!is_gone(&of_child));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_gone(&of_child) && is_interrupted(&of_child));
        assert_eq!(Requester::asynchronous(child.id()), Requester::Unknown);
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
