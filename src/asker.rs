//! For whom a thread works, and whether they still wait.

use std::cell::Cell;
use std::fs;

thread_local! {
    static ASKER: Cell<u32> = const { Cell::new(0) };
}

/// The thread that this one works for, by its number in the system; 0 where nobody is known.
pub fn asker() -> u32 {
    ASKER.get()
}

/// Works for the thread `asker`.
pub fn asked_by<T>(asker: u32, work: impl FnOnce() -> T) -> T {
    let before = ASKER.replace(asker);
    let result = work();
    ASKER.set(before);
    result
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

/// Whether a thread has been killed, and only waits for an answer before it ends. The kernel lets it wait,
/// without a word to us: it tells who asks for its signals.
pub fn is_killed(thread: u32) -> bool {
    if thread == 0 {
        return false;
    }
    let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status")) else {
        return true;
    };
    signals(&status, "SigPnd").is_some_and(|pending| pending & bit(libc::SIGKILL) != 0)
}

/// Whether a thread has a signal to handle as soon as it has its answer, or has been killed.
pub fn is_interrupted(thread: u32) -> bool {
    if thread == 0 {
        return false;
    }
    let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status")) else {
        return true;
    };
    let of = |mask| signals(&status, mask).unwrap_or(0);
    // These stop it and let it go on, which is no reason to give up.
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
