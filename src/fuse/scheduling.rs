//! How the threads that answer requests are woken.
//!
//! A thread that is woken for a request preempts another. That is right if somebody waits for the answer. A
//! sequential reader does not: the kernel reads ahead of it, and while it copies what it has, it would lose
//! its processor to the thread that decodes what it will want later, although another processor is idle soon
//! after. So threads that answer such requests run under `SCHED_BATCH`, which waits for an idle processor or
//! for its turn.

use std::cell::Cell;

/// Reads of at least this many bytes are for the kernel's read-ahead, whose window has this size unless it is
/// raised.
const AHEAD: u32 = 128 << 10;

thread_local! {
    /// Whether this thread is under `SCHED_BATCH`. None where the policy was chosen for this program, or
    /// cannot be changed: it stays.
    static BATCH: Cell<Option<bool>> = Cell::new(has_usual_policy().then_some(false));
}

fn has_usual_policy() -> bool {
    // SAFETY: it takes a number, and 0 is this thread.
    unsafe { libc::sched_getscheduler(0) == libc::SCHED_OTHER }
}

/// Notes that this thread has answered a read of `size` bytes: its next request is probably of the same kind.
pub(super) fn after_read(size: u32) {
    set_batch(size >= AHEAD);
}

/// Notes that this thread has a request other than a read to answer.
pub(super) fn before_other() {
    set_batch(false);
}

fn set_batch(batch: bool) {
    if BATCH.get().is_none_or(|now| now == batch) {
        return;
    }
    let policy = match batch {
        true => libc::SCHED_BATCH,
        false => libc::SCHED_OTHER,
    };
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters outlive the call, and 0 is this thread.
    let changed = unsafe { libc::sched_setscheduler(0, policy, &parameters) } == 0;
    BATCH.set(changed.then_some(batch));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> i32 {
        // SAFETY: it takes a number, and 0 is this thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    fn in_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn large_reads_are_batch_until_something_else_is_asked_for() {
        in_thread(|| {
            before_other();
            assert_eq!(policy(), libc::SCHED_OTHER);
            after_read(1 << 20);
            assert_eq!(policy(), libc::SCHED_BATCH);
            after_read(4096);
            assert_eq!(policy(), libc::SCHED_OTHER);
            after_read(AHEAD);
            assert_eq!(policy(), libc::SCHED_BATCH);
            before_other();
            assert_eq!(policy(), libc::SCHED_OTHER);
        });
    }

    #[test]
    fn a_policy_from_outside_stays() {
        in_thread(|| {
            let parameters = libc::sched_param { sched_priority: 0 };
            // SAFETY: the parameters outlive the call, and 0 is this thread.
            assert_eq!(
                unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) },
                0
            );
            after_read(1 << 20);
            before_other();
            assert_eq!(policy(), libc::SCHED_IDLE);
        });
    }
}
