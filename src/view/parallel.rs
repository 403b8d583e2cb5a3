//! The same work for many parts of a view, done by several threads.

use crate::error::{Error, ErrorKind};
use crate::requester;
use std::num::NonZeroUsize;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, available_parallelism, scope};

/// Threads that help at the moment, in the whole process: at most one for each processor, however many
/// callers there are.
static HELPERS: AtomicUsize = AtomicUsize::new(0);

/// A right to run one more thread; given back when dropped.
struct Permit;

impl Permit {
    fn take() -> Option<Permit> {
        let most = threads() as usize;
        let more = |helpers| (helpers < most).then(|| helpers + 1);
        let taken = HELPERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        HELPERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many threads work at once at most.
pub(crate) fn threads() -> u64 {
    /// Asked once: it takes some system calls, which were 2 % of the work with many small fragments.
    static THREADS: LazyLock<u64> =
        LazyLock::new(|| available_parallelism().map_or(1, NonZeroUsize::get) as u64);
    *THREADS
}

/// What `part` makes of each number below `count`, in order. The calling thread works too, so there is always
/// one. If one fails, the others stop soon. Parts may wait for anything: nothing else is waited for here.
pub(crate) fn each<T, E>(
    count: u64,
    part: impl Fn(u64) -> std::result::Result<T, E> + Sync,
) -> std::result::Result<Vec<T>, E>
where
    T: Send,
    E: Send + From<Error>,
{
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let run = || {
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            match part(number) {
                Ok(result) => done.push((number, result)),
                Err(error) => {
                    failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(done)
    };
    let (threads, requester) = (threads(), requester::requester());
    let mut all = scope(|scope| {
        let helpers: Vec<_> = (1..count.min(threads))
            .map_while(|_| Permit::take())
            .filter_map(|permit| {
                let help = || {
                    let _permit = permit;
                    requester::on_behalf_of(requester, run)
                };
                Builder::new().name("view".into()).spawn_scoped(scope, help).ok()
            })
            .collect();
        let mut all = run();
        for helper in helpers {
            let helped = helper.join().unwrap_or_else(|_| {
                Err(E::from(Error::new(
                    ErrorKind::Internal,
                    "a thread that reads a view panicked; this is a bug",
                )))
            });
            all = all.and_then(|mut all| helped.map(|helped| (all.extend(helped), all).1));
        }
        all
    })?;
    all.sort_unstable_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_the_first_failure_ends_it() {
        let doubled = each(1000, |n| Ok::<_, Error>(n * 2)).unwrap();
        assert_eq!(doubled, (0..1000).map(|n| n * 2).collect::<Vec<_>>());
        assert!(each(0, Ok::<_, Error>).unwrap().is_empty());
        let done = AtomicU64::new(0);
        let result = each(1 << 40, |n| match n {
            7 => Err(Error::corrupt("seven")),
            _ => Ok(done.fetch_add(1, Ordering::Relaxed)),
        });
        assert!(result.is_err());
    }

    #[test]
    fn many_callers_share_the_helpers() {
        let most = available_parallelism().map_or(1, NonZeroUsize::get);
        scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let result = each(50, |n| {
                        assert!(HELPERS.load(Ordering::Relaxed) <= most);
                        Ok::<_, Error>(n)
                    });
                    assert_eq!(result.unwrap().len(), 50);
                });
            }
        });
    }
}
