//! Sets of users who may read a file or list a directory of a source.

use std::fs;
use std::sync::OnceLock;

/// An access to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Want {
    /// Read a file.
    Read,
    /// Traverse a directory to reach a known name in it.
    Search,
    /// List a directory, with the type of each entry.
    List,
}

/// Which permission classes of one inode allow an access. The first class that matches a user decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classes {
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Whether user `uid` has access.
    pub owner: bool,
    /// Whether members of group `gid` have access.
    pub group: bool,
    /// Whether all other users have access.
    pub others: bool,
}

impl Classes {
    /// The classes that have all of the permissions `bits` (4 read, 2 write, 1 search) in `mode`.
    pub fn of_mode(uid: u32, gid: u32, mode: u32, bits: u32) -> Self {
        let has = |shift: u32| (mode >> shift) & bits == bits;
        Classes {
            uid,
            gid,
            owner: has(6),
            group: has(3),
            others: has(0),
        }
    }

    fn all(self) -> bool {
        self.owner && self.group && self.others
    }
}

/// Who makes a request.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The thread, which waits for the answer; 0 if unknown.
    pub thread: u32,
    groups: OnceLock<Option<Vec<u32>>>,
}

impl Credentials {
    /// The credentials of a thread with this user and group.
    pub fn new(uid: u32, gid: u32, thread: u32) -> Self {
        Credentials {
            uid,
            gid,
            thread,
            groups: OnceLock::new(),
        }
    }

    /// The supplementary groups, read once when they matter; None if unknown, as for threads of another
    /// namespace.
    fn groups(&self) -> Option<&[u32]> {
        let read = || {
            let status = match self.thread {
                0 => return None,
                thread => fs::read_to_string(format!("/proc/{thread}/status")).ok()?,
            };
            let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
            groups
                .split_whitespace()
                .map(|group| group.parse().ok())
                .collect()
        };
        self.groups.get_or_init(read).as_deref()
    }
}

/// Where a path leads, and who has access to that.
#[derive(Debug, Clone)]
pub struct Reached {
    /// The users who have access to the file that was reached, by the way that led to it.
    pub audience: Audience,
    /// The file's identity, as [`super::Metadata::identity`]; None if there is none, or files have none.
    pub identity: Option<u64>,
}

/// The users to whom every [`Classes`] of a list allows access. An empty list means everybody.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audience {
    nobody: bool,
    /// Without duplicates, and without classes that allow everybody.
    limits: Vec<Classes>,
}

impl Audience {
    /// All users.
    pub fn everybody() -> Self {
        Audience::default()
    }

    /// Nobody, except users who bypass permission checks.
    pub fn nobody() -> Self {
        Audience {
            nobody: true,
            limits: Vec::new(),
        }
    }

    /// Removes the users to whom `classes` denies access.
    pub fn limit(&mut self, classes: Classes) {
        if !classes.all() && !self.limits.contains(&classes) {
            self.limits.push(classes);
        }
    }

    /// Removes the users who are not in `other`.
    pub fn and(&mut self, other: &Audience) {
        self.nobody |= other.nobody;
        for classes in &other.limits {
            self.limit(*classes);
        }
    }

    /// Whether the user who acts with `credentials` is in the audience. False if that depends on groups that
    /// are unknown.
    pub fn has(&self, credentials: &Credentials) -> bool {
        let passes = |c: &Classes| match () {
            () if credentials.uid == c.uid => c.owner,
            () if credentials.gid == c.gid => c.group,
            () if c.group == c.others => c.group,
            () => match credentials.groups() {
                Some(groups) if groups.contains(&c.gid) => c.group,
                Some(_) => c.others,
                None => false,
            },
        };
        !self.nobody && self.limits.iter().all(passes)
    }

    /// The group to give to a file shown to this audience; None if no group makes a difference.
    pub fn group(&self) -> Option<u32> {
        self.limits.first().map(|classes| classes.gid)
    }

    /// Whether every member of group `gid` except `owner` has access, whatever other groups they are in.
    pub fn has_group(&self, gid: u32, owner: u32) -> bool {
        self.has_all(owner, |c| c.group && (c.gid == gid || c.others))
    }

    /// Whether every user outside of group `gid` except `owner` has access, whatever groups they are in.
    pub fn has_others(&self, gid: u32, owner: u32) -> bool {
        self.has_all(owner, |c| c.others && (c.gid == gid || c.group))
    }

    /// Whether all that limits the audience `passes`, and lets its owner in unless that is `owner`.
    fn has_all(&self, owner: u32, passes: impl Fn(&Classes) -> bool) -> bool {
        let mut limits = self.limits.iter();
        !self.nobody && limits.all(|c| passes(c) && (c.owner || c.uid == owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether user `uid`, in `groups`, may read an inode with this owner, group and mode.
    fn may(uid: u32, groups: &[u32], owner: u32, gid: u32, mode: u32) -> bool {
        let shift = match () {
            () if uid == owner => 6,
            () if groups.contains(&gid) => 3,
            () => 0,
        };
        (mode >> shift) & 4 == 4
    }

    #[test]
    fn shown_modes_grant_nothing_that_the_sources_deny() {
        // All pairs of sources with two owners, two groups and all combinations of read bits, for all users.
        const MOUNTER: u32 = 1;
        let users: [(u32, &[u32]); 10] = [
            (2, &[]),
            (2, &[10]),
            (2, &[11]),
            (2, &[10, 11]),
            (3, &[]),
            (3, &[10]),
            (3, &[11]),
            (3, &[10, 11]),
            (3, &[12]),
            (4, &[10, 12]),
        ];
        let modes = (0..8).map(|m: u32| (m & 4) << 6 | (m & 2) << 4 | (m & 1) << 2);
        let sources: Vec<(u32, u32, u32)> = modes
            .flat_map(|mode| [1, 2].map(|uid| (uid, mode)))
            .flat_map(|(uid, mode)| [10, 11].map(|gid| (uid, gid, mode)))
            .collect();
        let mut shown_to = 0;
        for a in &sources {
            for b in &sources {
                let mut audience = Audience::everybody();
                for (uid, gid, mode) in [a, b] {
                    audience.limit(Classes::of_mode(*uid, *gid, *mode, 4));
                }
                let gid = audience.group().unwrap_or(12);
                let mut mode = 0o400;
                mode |= u32::from(audience.has_group(gid, MOUNTER)) << 5;
                mode |= u32::from(audience.has_others(gid, MOUNTER)) << 2;
                for (uid, groups) in users {
                    let could = [a, b].iter().all(|(o, g, m)| may(uid, groups, *o, *g, *m));
                    let can = may(uid, groups, MOUNTER, gid, mode);
                    assert!(
                        could || !can,
                        "{uid} in {groups:?}: {a:?} {b:?} as {mode:o} of {gid}"
                    );
                    shown_to += u32::from(can);
                }
            }
        }
        assert!(shown_to > 1000, "{shown_to}");
    }

    #[test]
    fn a_group_keeps_access_if_all_sources_have_the_same_group() {
        let mut audience = Audience::everybody();
        audience.limit(Classes::of_mode(0, 5, 0o755, 5));
        assert_eq!(audience, Audience::everybody());
        audience.limit(Classes::of_mode(0, 5, 0o640, 4));
        audience.limit(Classes::of_mode(0, 5, 0o750, 5));
        assert_eq!(audience.group(), Some(5));
        assert!(audience.has_group(5, 0) && !audience.has_others(5, 0));
        audience.limit(Classes::of_mode(0, 6, 0o640, 4));
        assert!(!audience.has_group(5, 0));
        // "Others" have no access if the mode denies access to the owner, who is one of them.
        let mut audience = Audience::everybody();
        audience.limit(Classes::of_mode(7, 5, 0o044, 4));
        assert!(!audience.has_others(5, 0) && audience.has_others(5, 7));
        audience.and(&Audience::nobody());
        assert!(!audience.has_others(5, 7));
    }
}
