//! Delete and update conditions (`.del`, `.upd`; format version 16 and later).

use super::enums::{Combination, ConditionOp};
use crate::error::Result;

/// A condition tree. What is stored is the *negation* of the user's delete predicate: cells for which it holds are kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// An inner node.
    Expression {
        /// How the children combine.
        combination: Combination,
        /// At least one.
        children: Vec<Condition>,
    },
    /// A comparison of a field with a constant.
    Value {
        /// The comparison.
        op: ConditionOp,
        /// The field's name.
        field: Vec<u8>,
        /// The constant in the field's type; empty for a null test on a fixed-size field. For IN and NOT_IN all members one after the other.
        value: Vec<u8>,
        /// For IN and NOT_IN: the start of each member in `value`.
        offsets: Vec<u64>,
    },
}

/// A new value that an update assigns.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct UpdateValue {
    pub field: Vec<u8>,
    pub value: Vec<u8>,
}

impl Condition {
    /// Parses the unfiltered body of a `.del` file. Nesting over 64 levels is `LimitExceeded`.
    pub fn parse(body: &[u8]) -> Result<Condition> {
        let _ = body;
        unimplemented!("format helper")
    }

    /// Parses the unfiltered body of a `.upd` file: a condition and the values assigned.
    pub fn parse_update(body: &[u8]) -> Result<(Condition, Vec<UpdateValue>)> {
        let _ = body;
        unimplemented!("format helper")
    }
}
