//! Who may read what is in a source: permissions of files, and of all that lies on the way to them, as sets
//! of users.

/// What somebody wants to do with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Read a file.
    Read,
    /// Go through a directory, to something in it whose name is known.
    Search,
    /// See the names in a directory, and what they are.
    List,
}

/// Which classes of users may do something with one file, owned by user `uid` and group `gid`. A user counts
/// in the first class that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classes {
    /// Who owns it.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Whether user `uid` may.
    pub owner: bool,
    /// Whether the members of group `gid` may.
    pub group: bool,
    /// Whether all others may.
    pub others: bool,
}

impl Classes {
    /// The classes of an inode that have the permissions `bits` (4 read, 2 write, 1 search).
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

/// The users who pass a number of [`Classes`], every one of them; without any, everybody.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audience {
    nobody: bool,
    /// Without those that let everybody pass, each once.
    limits: Vec<Classes>,
}

impl Audience {
    /// All users.
    pub fn everybody() -> Self {
        Audience::default()
    }

    /// No user but those whom permissions do not stop.
    pub fn nobody() -> Self {
        Audience {
            nobody: true,
            limits: Vec::new(),
        }
    }

    /// Leaves those who pass `classes` too.
    pub fn limit(&mut self, classes: Classes) {
        if !classes.all() && !self.limits.contains(&classes) {
            self.limits.push(classes);
        }
    }

    /// Leaves those who are in `other` too.
    pub fn and(&mut self, other: &Audience) {
        self.nobody |= other.nobody;
        for classes in &other.limits {
            self.limit(*classes);
        }
    }

    /// The group that tells users apart, where one does: to be the group of what is shown to this audience.
    pub fn group(&self) -> Option<u32> {
        self.limits.first().map(|classes| classes.gid)
    }

    /// Whether all members of group `gid` are in it, `owner` aside. Members of it may be in any other group
    /// as well or not.
    pub fn has_group(&self, gid: u32, owner: u32) -> bool {
        let passes = |c: &Classes| {
            let as_member = c.group && (c.gid == gid || c.others);
            as_member && (c.owner || c.uid == owner)
        };
        !self.nobody && self.limits.iter().all(passes)
    }

    /// Whether all who are not members of group `gid` are in it, `owner` aside. They may be in any other
    /// group or not.
    pub fn has_others(&self, gid: u32, owner: u32) -> bool {
        let passes = |c: &Classes| {
            let as_other = c.others && (c.gid == gid || c.group);
            as_other && (c.owner || c.uid == owner)
        };
        !self.nobody && self.limits.iter().all(passes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether user `uid`, in `groups`, may read an inode of that owner, group and mode.
    fn may(uid: u32, groups: &[u32], owner: u32, gid: u32, mode: u32) -> bool {
        let shift = match () {
            () if uid == owner => 6,
            () if groups.contains(&gid) => 3,
            () => 0,
        };
        (mode >> shift) & 4 == 4
    }

    #[test]
    fn nobody_gains_by_what_is_shown() {
        // Every pair of sources of two owners, two groups and all modes for reading, seen by every user.
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
    fn agreeing_groups_keep_their_permission() {
        let mut audience = Audience::everybody();
        audience.limit(Classes::of_mode(0, 5, 0o755, 5));
        assert_eq!(audience, Audience::everybody());
        audience.limit(Classes::of_mode(0, 5, 0o640, 4));
        audience.limit(Classes::of_mode(0, 5, 0o750, 5));
        assert_eq!(audience.group(), Some(5));
        assert!(audience.has_group(5, 0) && !audience.has_others(5, 0));
        audience.limit(Classes::of_mode(0, 6, 0o640, 4));
        assert!(!audience.has_group(5, 0));
        // An owner whom the source's own permissions keep out does not count as one of the others.
        let mut audience = Audience::everybody();
        audience.limit(Classes::of_mode(7, 5, 0o044, 4));
        assert!(!audience.has_others(5, 0) && audience.has_others(5, 7));
        audience.and(&Audience::nobody());
        assert!(!audience.has_others(5, 7));
    }
}
