//! The same work for many parts, done by several threads.

use crate::runtime::{Permits, lock, requester};
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread::{Builder, available_parallelism, scope};

/// Threads that help at the moment, in the whole process: at most one for each processor, however many
/// callers there are.
static HELPERS: Permits = Permits::new();

/// How many threads work at once at most.
pub(crate) fn threads() -> u64 {
    /// Asked once: it takes some system calls, which were 2 % of the work with many small fragments.
    static THREADS: LazyLock<u64> =
        LazyLock::new(|| available_parallelism().map_or(1, NonZeroUsize::get) as u64);
    *THREADS
}

/// What `part` makes of each number below `count`, in their order. The caller's thread works too, so that
/// there is always one. Where it fails, the error is that of the lowest number, and the threads stop soon. A
/// panic in one of them is one of the caller. Nothing is waited for but the parts themselves, so that these
/// may wait for whatever they like.
pub(crate) fn each<T, E>(
    count: u64,
    part: impl Fn(u64) -> std::result::Result<T, E> + Sync,
) -> std::result::Result<Vec<T>, E>
where
    T: Send,
    E: Send,
{
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let all = Mutex::new(Vec::new());
    share(count, &|| {
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let result = part(number);
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            done.push((number, result));
        }
        lock(&all).extend(done);
    });
    let all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    // All numbers below that of the first that nobody took. Sorting would be compiled for each kind of
    // result.
    let mut results: Vec<_> = all.iter().map(|_| None).collect();
    for (number, result) in all {
        results[number as usize] = Some(result);
    }
    results
        .into_iter()
        .map(|result| result.expect("each number is taken once"))
        .collect()
}

/// Runs `work` in this thread, and in others at the same time, `most` in all. Not a part of `each`, which is
/// compiled for each kind of work.
fn share(most: u64, work: &(dyn Fn() + Sync)) {
    let requester = requester::requester();
    scope(|scope| {
        let helpers: Vec<_> = (1..most.min(threads()))
            .map_while(|_| HELPERS.take(threads() as usize))
            .filter_map(|permit| {
                let requester = requester.clone();
                let help = move || {
                    let _permit = permit;
                    requester::on_behalf_of(requester, work)
                };
                Builder::new()
                    .name("helper".into())
                    .spawn_scoped(scope, help)
                    .ok()
            })
            .collect();
        work();
        for helper in helpers {
            if let Err(panic) = helper.join() {
                resume_unwind(panic);
            }
        }
    });
}

/// Does `work` in a thread of its own if fewer threads than processors help, else not at all. Nobody waits
/// for it.
pub(crate) fn aside(work: impl FnOnce() + Send + 'static) {
    if let Some(permit) = HELPERS.take(threads() as usize) {
        let help = move || {
            let _permit = permit;
            work();
        };
        // Without a thread it is not done either.
        let _ = Builder::new().name("helper".into()).spawn(help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn results_come_in_order_and_the_first_failure_is_the_result() {
        let doubled = each(1000, |n| Ok::<_, Error>(n * 2)).unwrap();
        assert_eq!(doubled, (0..1000).map(|n| n * 2).collect::<Vec<_>>());
        assert!(each(0, Ok::<_, Error>).unwrap().is_empty());
        assert_eq!(each(1 << 40, |n| if n < 7 { Ok(n) } else { Err(n) }), Err(7));
    }

    #[test]
    fn many_callers_share_the_helpers() {
        let most = available_parallelism().map_or(1, NonZeroUsize::get);
        scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let result = each(50, |n| {
                        assert!(HELPERS.taken() <= most);
                        Ok::<_, Error>(n)
                    });
                    assert_eq!(result.unwrap().len(), 50);
                });
            }
        });
    }
}
