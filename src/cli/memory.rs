//! How much memory this process may take.

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};
use std::fs;
use std::path::Path;

/// The default size of the cache, in bytes, where memory is not short.
const CACHE_SIZE: u64 = 256 << 20;

/// The default size of the cache, in bytes: at most a quarter of the memory that this process may take. What
/// is not cached needs some as well, and so do other programs in a container.
pub(super) fn default_cache_size() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let process = |of| getrlimit(of).ok().map(|(soft, _)| soft);
    let limits = [
        process(Resource::RLIMIT_AS),
        process(Resource::RLIMIT_DATA),
        machine(),
        of_groups(Path::new("/sys/fs/cgroup"), &groups),
    ];
    let quarters = limits.into_iter().flatten().map(|limit| (limit / 4).max(1));
    quarters.fold(CACHE_SIZE, u64::min)
}

/// The memory of this machine.
fn machine() -> Option<u64> {
    let number = |of| u64::try_from(sysconf(of).ok()??).ok();
    number(SysconfVar::_PHYS_PAGES)?.checked_mul(number(SysconfVar::PAGE_SIZE)?)
}

/// The least limit of the control groups, of both versions, that a process is in whose `/proc/self/cgroup`
/// has these `groups`. A container may see its own group in the place of the root.
fn of_groups(root: &Path, groups: &str) -> Option<u64> {
    let mut least: Option<u64> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (top, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            // `max` is no limit.
            let limit = fs::read_to_string(top.join(group).join(file)).unwrap_or_default();
            if let Ok(limit) = limit.trim().parse() {
                least = Some(least.map_or(limit, |least| least.min(limit)));
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, limit: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{limit}\n")).unwrap();
        };
        let limit = |groups: &str| of_groups(folder.path(), groups);
        assert_eq!(limit("0::/a/b\n"), None);
        write("a/b/memory.max", "max");
        assert_eq!(limit("0::/a/b\n"), None);
        write("a/memory.max", "1000");
        assert_eq!(limit("0::/a/b\n"), Some(1000));
        write("a/b/memory.max", "2000");
        assert_eq!((limit("0::/a/b\n"), limit("0::/\n")), (Some(1000), None));
        // The first version, in a container that sees its own group alone.
        write("memory/memory.limit_in_bytes", "500");
        let groups = "5:cpu:/docker/x\n4:hugetlb,memory:/docker/x\n0::/a/b\n";
        assert_eq!(limit(groups), Some(500));
        assert_eq!(limit("5:cpu:/docker/x\n0::/docker/x\n"), None);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(machine().is_some_and(|bytes| bytes > 1 << 20));
        assert!((1..=CACHE_SIZE).contains(&default_cache_size()));
    }
}
