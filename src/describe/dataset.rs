//! `dataset.json`: a group as one data set.

use super::{Json, object, value};
use crate::error::Result;
use crate::export::dataset::{Dataset, Group};

/// The document. Reads metadata.
pub fn dataset_json(dataset: &Dataset) -> Result<Json> {
    let mut members = vec![("kind".to_owned(), Json::from(dataset.kind.name()))];
    members.extend(group(&dataset.root)?);
    Ok(Json::from_iter(members))
}

/// Dimensions by name with their lengths, variables, what is left out, and the groups by name.
fn group(group: &Group) -> Result<[(String, Json); 4]> {
    let dimensions = group.dimensions.iter();
    let variables = group.variables.iter().map(|variable| {
        let dimensions = variable.dimensions.iter();
        object!({
            "name": variable.name.clone(),
            "array": value::name(&variable.array),
            "attribute": value::name(&variable.attribute),
            "dimensions": dimensions.map(|number| group.dimensions[*number].0.clone()).collect::<Json>(),
        })
    });
    let (unplaced, described) = (group.unplaced(), group.described_dimensions()?);
    let left_out = group.left_out.iter().chain(&unplaced).chain(&described);
    let left_out = left_out.map(|(what, reason)| {
        object!({
            "what": what.clone(),
            "reason": reason.clone(),
        })
    });
    let groups = group.groups.iter();
    let groups = groups.map(|(name, inner)| Ok((name.clone(), Json::from_iter(self::group(inner)?))));
    let members = [
        (
            "dimensions",
            dimensions
                .map(|(name, length)| (name.clone(), Json::from(*length)))
                .collect::<Json>(),
        ),
        ("variables", variables.collect::<Json>()),
        ("left_out", left_out.collect::<Json>()),
        ("groups", groups.collect::<Result<Json>>()?),
    ];
    Ok(members.map(|(key, value)| (key.to_owned(), value)))
}
