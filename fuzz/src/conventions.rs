//! What other programs keep in metadata: documents of XML and JSON, and attributes of variables.

use super::placed;
use tiledbfs::internals::export::grid::Value;
use tiledbfs::internals::export::metadata::Metadata;
use tiledbfs::internals::export::metadata::gdal::{MAX_BANDS, Raster};
use tiledbfs::internals::field;
use tiledbfs::internals::format::datatype::{CellValNum, Datatype};
use tiledbfs::internals::format::field::Role;

/// The fields of an array that all conventions may be about: types, and values in a cell.
const FIELDS: [(&str, Role, Datatype, CellValNum); 8] = [
    (
        "BANDS",
        Role::Dimension(0),
        Datatype::Uint64,
        CellValNum::Fixed(1),
    ),
    ("Y", Role::Dimension(1), Datatype::Uint64, CellValNum::Fixed(1)),
    ("X", Role::Dimension(2), Datatype::Uint64, CellValNum::Fixed(1)),
    (
        "TDB_VALUES",
        Role::Attribute(0),
        Datatype::Int16,
        CellValNum::Fixed(1),
    ),
    ("i", Role::Attribute(1), Datatype::Int64, CellValNum::Fixed(1)),
    ("t", Role::Attribute(2), Datatype::StringUtf8, CellValNum::Var),
    (
        "d",
        Role::Attribute(3),
        Datatype::DatetimeDay,
        CellValNum::Fixed(1),
    ),
    ("geometry", Role::Attribute(4), Datatype::Uint8, CellValNum::Var),
];

/// A document of GDAL with all that is read of it.
const GDAL: &str = r#"<PAMDataset><SRS dataAxisToSRSAxisMapping="1,2">PROJCS["a &amp; b",AUTHORITY["EPSG","32632"]]</SRS>
<GeoTransform>  4.0e+05,  1.0e+01,  0.0,  5.3e+06,  0.0, -1.0e+01</GeoTransform>
<Metadata><MDI key="AREA_OR_POINT">Area</MDI></Metadata>
<Metadata domain="IMAGE_STRUCTURE"><MDI key="X_SIZE">50</MDI><MDI key="Y_SIZE">37</MDI></Metadata>
<PAMRasterBand band="1"><Description>red &#x26; near</Description><NoDataValue>-9999</NoDataValue><Offset>-273.15</Offset>
<Scale>0.25</Scale><UnitType>K</UnitType><ColorTable><Entry c1="1" c2="2" c3="3" c4="255"/></ColorTable>
<Metadata domain="d"><MDI key="k"><![CDATA[<v>]]></MDI></Metadata></PAMRasterBand></PAMDataset>"#;

/// Bodies of metadata files in which each convention is told as programs tell it.
pub fn seeds() -> Vec<Vec<u8>> {
    let text = |key: &str, text: &str| record(key, Datatype::StringUtf8, text.as_bytes());
    let number = |key: &str, number: f64| record(key, Datatype::Float64, &number.to_le_bytes());
    vec![
        record("_gdal", Datatype::Uint8, GDAL.as_bytes()),
        [
            text("__pandas_index_dims", r#"{"X": "int64", "Y": "uint64"}"#),
            text(
                "__pandas_attribute_repr",
                r#"{"i": "Int64", "t": "string", "d": "datetime64[s]"}"#,
            ),
        ]
        .concat(),
        [
            text("GEOMETRY_ATTRIBUTE_NAME", "geometry"),
            text(
                "CRS",
                r#"{"type": "GeographicCRS", "name": "a", "id": {"authority": "EPSG", "code": 4326}}"#,
            ),
            number("LAYER_EXTENT_MINX", -1.0),
            number("LAYER_EXTENT_MINY", -2.0),
            number("LAYER_EXTENT_MAXX", 3.0),
            number("LAYER_EXTENT_MAXY", 4.0),
        ]
        .concat(),
        [
            text("__tiledb_attr.TDB_VALUES.units", "K"),
            number("__tiledb_attr.TDB_VALUES.scale_factor", 0.01),
            number("__tiledb_attr.TDB_VALUES._FillValue", -999.0),
            text("__tiledb_dim.X.axis", "X"),
            text("_UNIT", "m"),
            text("_CRS", "LOCAL_CS[\"a\"]"),
            number("__np_flat_matrix", 1.0),
        ]
        .concat(),
    ]
}

/// One value of a type of text or bytes, or one number.
fn record(key: &str, datatype: Datatype, value: &[u8]) -> Vec<u8> {
    let count = (value.len() / datatype.size()) as u32;
    let mut out = (key.len() as u32).to_le_bytes().to_vec();
    out.extend(key.as_bytes());
    out.extend([0, datatype as u8]);
    out.extend(count.to_le_bytes());
    out.extend(value);
    out
}

/// The body of a metadata file of an array with the dimensions of a raster.
pub fn conventions(data: &[u8]) {
    let fields = FIELDS.map(|(name, role, datatype, values)| field(name, role, datatype, values));
    let Ok(metadata) = placed(Metadata::of_body(&fields, &data.to_vec())) else {
        return;
    };
    assert_eq!(metadata.fields.len(), fields.len());
    for (field, attributes) in fields.iter().zip(&metadata.fields) {
        for (name, value) in attributes {
            let own = name == "_FillValue" && field.datatype == Datatype::Int16;
            match value {
                Value::Numbers(datatype, bytes) => {
                    assert!(!bytes.is_empty() && bytes.len() % datatype.size() == 0);
                    assert!(!own || *datatype == field.datatype && bytes.len() == 2);
                }
                Value::Text(_) => assert!(!own),
            }
        }
    }
    if let Some(raster) = &metadata.raster {
        check(raster);
    }
    if let Some(pandas) = &metadata.pandas {
        let named = pandas.types.keys().chain(&pandas.index).chain(&pandas.signed);
        assert!(named.into_iter().all(|field| *field < fields.len()));
    }
    if let Some(geometry) = &metadata.geometry {
        let is_var = |field: &usize| fields[*field].cell_val_num.is_var();
        assert!(!geometry.fields.is_empty() && geometry.fields.iter().all(is_var));
        if let Some([min_x, min_y, max_x, max_y]) = geometry.extent {
            assert!(min_x <= max_x && min_y <= max_y);
        }
    }
}

/// What exports rely on.
fn check(raster: &Raster) {
    if let Some([x, a, b, y, c, d]) = raster.transform {
        let tells_apart = a * d - b * c;
        assert!(x.is_finite() && y.is_finite() && tells_apart.is_finite() && tells_apart != 0.0);
    }
    assert!(raster.size.is_none_or(|(width, height)| width > 0 && height > 0));
    for (number, band) in &raster.bands {
        assert!((1..=MAX_BANDS).contains(number));
        assert!(band.scale.is_none_or(f64::is_finite) && band.offset.is_none_or(f64::is_finite));
        assert!(band.palette.len() <= 1 << 16);
    }
}
