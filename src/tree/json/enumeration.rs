//! `enumerations/<name>.json`.

use super::value;
use crate::format::datatype::CellValNum;
use crate::format::enumeration::Enumeration;
use serde_json::{Value, json};

/// An enumeration with its values in the order of the indexes that stand for them.
pub fn enumeration_json(enumeration: &Enumeration) -> Value {
    let Enumeration {
        datatype,
        cell_val_num,
        ..
    } = *enumeration;
    json!({
        "name": value::name(&enumeration.name),
        "datatype": datatype.name(),
        "cell_val_num": value::cell_val_num(cell_val_num),
        "ordered": enumeration.ordered,
        "values": match cell_val_num {
            CellValNum::Fixed(n) => value::fixed_cells(datatype, n, &enumeration.data),
            CellValNum::Var => value::var_cells(datatype, &enumeration.offsets, &enumeration.data),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::datatype::Datatype;

    #[test]
    fn values_are_typed() {
        let colours = Enumeration {
            name: b"colour".to_vec(),
            file: b"__1_0".to_vec(),
            datatype: Datatype::StringUtf8,
            cell_val_num: CellValNum::Var,
            ordered: false,
            data: "redgrünblue".into(),
            offsets: vec![0, 3, 8, 8],
        };
        assert_eq!(
            enumeration_json(&colours).to_string(),
            concat!(
                r#"{"name":"colour","datatype":"STRING_UTF8","cell_val_num":"var","ordered":false,"#,
                r#""values":["red","grün","","blue"]}"#,
            )
        );
        let sizes = Enumeration {
            name: vec![0xFF],
            datatype: Datatype::Int16,
            cell_val_num: CellValNum::Fixed(1),
            ordered: true,
            data: vec![10, 0, 20, 0],
            offsets: vec![],
            ..colours
        };
        assert_eq!(
            enumeration_json(&sizes).to_string(),
            r#"{"name":{"hex":"ff"},"datatype":"INT16","cell_val_num":1,"ordered":true,"values":[10,20]}"#
        );
    }
}
