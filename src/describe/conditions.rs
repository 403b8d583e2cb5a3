//! `conditions.json`: the delete conditions that a consolidation already applied to a fragment.

use super::{Json, value};

/// An array of the paths of the processed conditions, relative to the array as they are stored, such as
/// `__commits/__1_1_<uuid>_22.del`. Null for None, which versions below 16 have.
pub fn conditions_json(paths: Option<&[Vec<u8>]>) -> Json {
    match paths {
        Some(paths) => paths.iter().map(|path| value::name(path)).collect(),
        None => Json::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_are_listed() {
        let paths = [b"__commits/__1_1_ab_22.del".to_vec(), vec![0xFF]];
        assert_eq!(
            conditions_json(Some(&paths)),
            json!(["__commits/__1_1_ab_22.del", {"hex": "ff"}])
        );
        assert_eq!(conditions_json(Some(&[])), json!([]));
        assert_eq!(conditions_json(None), Json::Null);
    }
}
