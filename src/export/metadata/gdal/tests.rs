use super::*;
use crate::format::datatype::CellValNum;

/// The dimensions of GDAL's rasters.
fn axes() -> Vec<Field> {
    let field = |(i, name): (usize, &str)| Field {
        name: name.as_bytes().to_vec(),
        role: Role::Dimension(i),
        datatype: Datatype::Uint64,
        cell_val_num: CellValNum::Fixed(1),
        nullable: false,
        fill_value: Vec::new(),
        fill_value_valid: true,
        enumeration: None,
    };
    ["BANDS", "Y", "X"].into_iter().enumerate().map(field).collect()
}

/// What is read, and the reasons of what is left out.
fn read(document: &str) -> (Option<Raster>, Vec<&'static str>) {
    let mut left_out = Vec::new();
    let value = Value::Numbers(Datatype::Uint8, document.as_bytes().to_vec());
    let raster = Raster::read(&axes(), Ok(value), &mut left_out);
    (raster, left_out.into_iter().map(|(_, reason)| reason).collect())
}

#[test]
fn documents_of_gdal_are_read() {
    let document = r#"<?xml version="1.0"?><tiledb:PAMDataset tiledb:version="1">
      <SRS dataAxisToSRSAxisMapping="1,2">GEOGCS["a &amp; b"]</SRS>
      <GeoTransform>  4.0e+02,  1.0, 0, 50.5, 0.0, -1.0</GeoTransform>
      <Metadata domain="IMAGE_STRUCTURE"><MDI key="X_SIZE">20</MDI><MDI key="Y_SIZE"> 10 </MDI></Metadata>
      <Metadata><MDI key="A&quot;B">1 &lt; 2 &#x41;</MDI></Metadata>
      <Metadata domain="SUBDATASETS"><MDI key="x">/home</MDI></Metadata>
      <PAMRasterBand band="2">
        <Description>red</Description><NoDataValue le_hex_equiv="0">nan</NoDataValue><Scale>0.5</Scale>
        <UnitType></UnitType><Metadata domain="d"><MDI key="k"><![CDATA[<v>]]></MDI></Metadata>
        <ColorTable><Entry c1="1" c2="2" c3="3" c4="255"/></ColorTable>
      </PAMRasterBand><!-- and nothing else -->
    </tiledb:PAMDataset>"#;
    let (raster, left_out) = read(document);
    let (raster, text) = (raster.unwrap(), |text: &str| text.to_owned());
    assert_eq!(left_out, Vec::<&str>::new());
    assert_eq!(raster.crs.as_deref(), Some(r#"GEOGCS["a & b"]"#));
    assert_eq!(raster.transform, Some([400.0, 1.0, 0.0, 50.5, 0.0, -1.0]));
    assert_eq!(raster.size, Some((20, 10)));
    assert_eq!(raster.tags, [(text(""), text("A\"B"), text("1 < 2 A"))]);
    let band = &raster.bands[&2];
    assert!(band.nodata.unwrap().float().is_nan());
    assert_eq!((band.scale, band.offset, &band.unit), (Some(0.5), None, &None));
    assert_eq!(
        (band.description.as_deref(), &*band.palette),
        (Some("red"), &[[1, 2, 3]][..])
    );
    assert_eq!(band.tags, [(text("d"), text("k"), text("<v>"))]);
}

#[test]
fn bytes_that_are_not_utf_8_keep_nothing_else_from_being_read() {
    let document = b"<PAMDataset><Metadata><MDI key=\"a\">M\xfcller</MDI></Metadata>\
        <GeoTransform>1,1,0,2,0,-1</GeoTransform></PAMDataset>";
    let mut left_out = Vec::new();
    let value = Value::Numbers(Datatype::Uint8, document.to_vec());
    let raster = Raster::read(&axes(), Ok(value), &mut left_out).unwrap();
    assert_eq!(raster.transform, Some([1.0, 1.0, 0.0, 2.0, 0.0, -1.0]));
    assert_eq!(raster.tags[0].2, "M\u{fffd}ller");
    assert!(left_out[0].1.contains("UTF-8"));
}

#[test]
fn the_year_of_coordinates_is_read() {
    let of = |year: &str| {
        let (raster, left_out) = read(&format!(
            "<PAMDataset><SRS coordinateEpoch=\"{year}\">GEOGCS[\"a\"]</SRS></PAMDataset>"
        ));
        (raster.unwrap().epoch, left_out.len())
    };
    assert_eq!(
        (of("2021.3"), of("x"), of("inf")),
        ((Some(2021.3), 1), (None, 1), (None, 1))
    );
}

#[test]
fn a_place_that_subdatasets_alone_tell_is_that_of_the_raster() {
    let subdataset = |name: &str, inner: &str| {
        format!(r#"<Subdataset name="{name}"><PAMDataset>{inner}</PAMDataset></Subdataset>"#)
    };
    let size = |width: u64| {
        format!(
            r#"<Metadata domain="IMAGE_STRUCTURE"><MDI KEY="X_SIZE">{width}</MDI><MDI KEY="Y_SIZE">10</MDI></Metadata>"#
        )
    };
    let place = format!("{}<SRS>s</SRS><GeoTransform>1,2,0,3,0,4</GeoTransform>", size(20));
    let both = subdataset("a", &place) + &subdataset("b", &size(20));
    let (raster, left_out) = read(&format!("<PAMDataset>{both}</PAMDataset>"));
    let raster = raster.unwrap();
    assert_eq!(
        (
            raster.size,
            raster.crs.as_deref(),
            raster.transform,
            left_out.len()
        ),
        (Some((20, 10)), Some("s"), Some([1.0, 2.0, 0.0, 3.0, 0.0, 4.0]), 0)
    );
    // The document's own comes first, wherever it stands.
    let (raster, _) = read(&format!("<PAMDataset>{both}{}<SRS>r</SRS></PAMDataset>", size(7)));
    let raster = raster.unwrap();
    assert_eq!((raster.size, raster.crs.as_deref()), (Some((7, 10)), Some("r")));
    let (raster, left_out) = read(&format!(
        "<PAMDataset>{}</PAMDataset>",
        subdataset("a", r#"<PAMRasterBand band="1"/>"#)
    ));
    assert_eq!(raster, Some(Raster::default()));
    assert_eq!(left_out, ["tags and bands of subdatasets are not shown"]);
}

#[test]
fn numbers_are_those_of_their_bytes() {
    let cases = [
        ("000000A09999B93F", f64::from(0.1f32)),
        ("000000a09999b93f", f64::from(0.1f32)),
        ("000000A09999B93", 0.5),
        ("+00000A09999B93F", 0.5),
        ("000000A09999B93F00", 0.5),
        ("000000A09999B93G", 0.5),
    ];
    for (digits, number) in cases {
        let value = format!(r#"<NoDataValue le_hex_equiv="{digits}">5e-1</NoDataValue>"#);
        let (raster, left_out) = read(&format!(
            r#"<PAMDataset><PAMRasterBand band="1">{value}</PAMRasterBand></PAMDataset>"#
        ));
        assert_eq!(
            raster.unwrap().bands[&1].nodata,
            Some(Scalar::Float64(number)),
            "{digits}"
        );
        assert_eq!(left_out, Vec::<&str>::new());
    }
}

#[test]
fn integers_that_floats_lack_are_kept() {
    let cases = [
        ("9007199254740992", Scalar::Float64(9_007_199_254_740_992.0)),
        ("9007199254740993", Scalar::Signed(9_007_199_254_740_993)),
        ("-9223372036854775807", Scalar::Signed(-i64::MAX)),
        ("-9223372036854775808", Scalar::Signed(i64::MIN)),
        ("18446744073709551615", Scalar::Unsigned(u64::MAX)),
        ("1e30", Scalar::Float64(1e30)),
    ];
    for (digits, number) in cases {
        let (raster, left_out) = read(&format!(
            r#"<PAMDataset><PAMRasterBand band="1"><NoDataValue>{digits}</NoDataValue></PAMRasterBand></PAMDataset>"#
        ));
        assert_eq!(raster.unwrap().bands[&1].nodata, Some(number), "{digits}");
        assert_eq!(left_out, Vec::<&str>::new());
    }
}

#[test]
fn ground_control_points_are_told_where_no_transform_is() {
    let list = r#"<GCPList Projection="GEOGCS[&quot;a&quot;]"><GCP Id="1" Pixel="0.5" Line="2" X="1.0E+01" Y="-3"/>
        <GCP Pixel="7" Line="2" X="4" Y="5" Z="6"/></GCPList>"#;
    let (raster, left_out) = read(&format!("<PAMDataset>{list}</PAMDataset>"));
    let raster = raster.unwrap();
    assert_eq!(
        raster.points,
        [[0.5, 2.0, 10.0, -3.0, 0.0], [7.0, 2.0, 4.0, 5.0, 6.0]]
    );
    assert_eq!(raster.crs_of_points.as_deref(), Some(r#"GEOGCS["a"]"#));
    assert_eq!(
        (raster.crs, &*left_out),
        (None, &["images alone tell ground control points"][..])
    );
    let (raster, left_out) = read(&format!(
        "<PAMDataset>{list}<GeoTransform>1,1,0,1,0,1</GeoTransform></PAMDataset>"
    ));
    assert_eq!(raster.unwrap().points, Vec::<[f64; 5]>::new());
    assert_eq!(
        left_out,
        ["ground control points are not shown beside a GeoTransform"]
    );
}

#[test]
fn what_is_malformed_is_left_out_and_the_rest_is_kept() {
    let cases = [
        ("<GeoTransform>1,2,3</GeoTransform>", "six numbers"),
        ("<GeoTransform>1,2,3,4,5,x</GeoTransform>", "six numbers"),
        ("<GeoTransform>0,0,0,0,0,0</GeoTransform>", "six numbers"),
        ("<GeoTransform>0,nan,0,0,0,1</GeoTransform>", "six numbers"),
        (
            "<GCPList><GCP Pixel='1' Line='2' X='3'/></GCPList>",
            "control point",
        ),
        (
            r#"<Metadata domain="IMAGE_STRUCTURE"><MDI key="X_SIZE">0</MDI></Metadata>"#,
            "two lengths",
        ),
        (r#"<PAMRasterBand band="0"/>"#, "no number"),
        (
            r#"<PAMRasterBand band="1"><Scale>x</Scale></PAMRasterBand>"#,
            "not a number",
        ),
        (
            r#"<PAMRasterBand band="1"><ColorTable><Entry c1="256" c2="0" c3="0"/></ColorTable></PAMRasterBand>"#,
            "no colours",
        ),
        (
            r#"<PAMRasterBand band="1"><ColorTable><Entry c1="1" c2="0" c3="0" c4="0"/></ColorTable></PAMRasterBand>"#,
            "transparent",
        ),
        (
            r#"<Metadata domain="xml:XMP" format="xml"><x/></Metadata>"#,
            "document",
        ),
        (
            r#"<Metadata domain="json:A" format="json">{}</Metadata>"#,
            "document",
        ),
        (
            r#"<PAMRasterBand band="1"><Metadata domain="json:A" format="json">{}</Metadata></PAMRasterBand>"#,
            "document",
        ),
    ];
    for (part, reason) in cases {
        let (raster, left_out) = read(&format!("<PAMDataset>{part}<SRS>x</SRS></PAMDataset>"));
        assert_eq!(raster.unwrap().crs.as_deref(), Some("x"), "{part}");
        assert!(
            matches!(&left_out[..], [found] if found.contains(reason)),
            "{part}: {left_out:?}"
        );
    }
}

#[test]
fn what_is_no_such_document_is_left_out() {
    let many = format!("<PAMDataset>{}</PAMDataset>", "<a/>".repeat(MAX_ELEMENTS));
    let deep = format!("<PAMDataset>{}", "<a>".repeat(100_000));
    let cases = [
        ("", "well-formed"),
        ("text", "well-formed"),
        ("<PAMDataset>", "well-formed"),
        ("<PAMDataset></other>", "well-formed"),
        ("</PAMDataset>", "well-formed"),
        ("<PAMDataset/><PAMDataset/>", "well-formed"),
        ("<PAMDataset a=b/>", "well-formed"),
        ("<VRTDataset/>", "no PAMDataset"),
        ("<PAMDataset>&bomb;</PAMDataset>", "entities"),
        (
            r#"<!DOCTYPE a [<!ENTITY b "c">]><PAMDataset>&b;</PAMDataset>"#,
            "document type",
        ),
        (r#"<PAMDataset><MDI key="&bomb;"/></PAMDataset>"#, "well-formed"),
        (&deep, "too deep"),
        (&many, "too many"),
    ];
    for (document, reason) in cases {
        let (raster, left_out) = read(document);
        let short = &document[..document.len().min(40)];
        assert_eq!(raster, None, "{short}");
        assert!(
            matches!(&left_out[..], [found] if found.contains(reason)),
            "{short}: {left_out:?}"
        );
    }
    let mut left_out = Vec::new();
    let text = || Ok(Value::Text("<PAMDataset/>".to_owned()));
    assert_eq!(Raster::read(&axes()[..2], text(), &mut left_out), None);
    assert_eq!(Raster::read(&axes(), Err("it is too long"), &mut left_out), None);
    assert_eq!(
        Raster::read(&axes(), text(), &mut left_out),
        Some(Raster::default())
    );
    assert_eq!(left_out.len(), 2);
}

#[test]
fn what_variables_cannot_have_is_left_out_with_a_reason() {
    let values = |name: &str, datatype| Field {
        name: name.as_bytes().to_vec(),
        role: Role::Attribute(0),
        datatype,
        ..axes().swap_remove(0)
    };
    let document = r#"<PAMDataset>
        <PAMRasterBand band="1"><NoDataValue>-9999</NoDataValue><Scale>0.5</Scale></PAMRasterBand>
        <PAMRasterBand band="2"><NoDataValue>70000</NoDataValue></PAMRasterBand></PAMDataset>"#;
    let raster = read(document).0.unwrap();
    let reasons = |fields: &[Field]| {
        let mut left_out = Vec::new();
        raster.check(fields, &mut left_out);
        left_out.into_iter().map(|(_, reason)| reason).collect::<Vec<_>>()
    };
    let with = |attributes: &[Field]| [&axes()[1..], attributes].concat();
    let reason = "the variable's type does not have the value";
    let along_bands = |datatype| [axes(), vec![values("a", datatype)]].concat();
    assert_eq!(reasons(&along_bands(Datatype::Uint16)), [reason]);
    assert_eq!(reasons(&along_bands(Datatype::Float32)), Vec::<&str>::new());
    let int16 = [
        values("TDB_VALUES_1", Datatype::Int16),
        values("TDB_VALUES_2", Datatype::Int16),
    ];
    assert_eq!(reasons(&with(&int16)), [reason]);
    assert_eq!(reasons(&with(&int16[..1])), Vec::<&str>::new());
    let turned = [&axes()[1..], &int16[..1]].concat();
    let turned = [turned[1].clone(), turned[0].clone(), turned[2].clone()];
    assert_eq!(
        reasons(&turned),
        ["images have it only if X comes right behind Y"]
    );
    let long = format!(
        r#"<PAMDataset><PAMRasterBand band="1"><Description>{}</Description></PAMRasterBand></PAMDataset>"#,
        "x".repeat(65_400)
    );
    let mut left_out = Vec::new();
    let described = read(&long).0.unwrap();
    described.check(&with(&int16[..1]), &mut left_out);
    assert_eq!(left_out, [(KEY.to_vec(), "it is too long")]);
    // No band is told of the others.
    let others = [
        values("a", Datatype::Uint8),
        values("TDB_VALUES_3", Datatype::Uint8),
    ];
    assert_eq!(reasons(&with(&others)), Vec::<&str>::new());
}

#[test]
fn what_images_cannot_have_is_left_out_with_a_reason() {
    let band = |content: &str| {
        format!(r#"<PAMDataset><PAMRasterBand band="1">{content}</PAMRasterBand></PAMDataset>"#)
    };
    for content in ["<Scale>1e999</Scale>", "<Offset>nan</Offset>"] {
        let (raster, left_out) = read(&band(content));
        let band = &raster.unwrap().bands[&1];
        assert_eq!((band.scale, band.offset), (None, None));
        assert_eq!(left_out, ["a scale or an offset is not finite"]);
    }
    let (raster, left_out) = read(&format!(
        "<PAMDataset><SRS>{}</SRS></PAMDataset>",
        "x".repeat(70_000)
    ));
    assert_eq!((raster.unwrap().crs, left_out.len()), (None, 1));
    let colours = r#"<Entry c1="1" c2="2" c3="3"/>"#.repeat(300);
    let (raster, _) = read(&band(&format!("<ColorTable>{colours}</ColorTable>")));
    for (datatype, reasons) in [(Datatype::Uint8, 1), (Datatype::Uint16, 0), (Datatype::Int16, 1)] {
        let mut fields = axes();
        fields.push(Field {
            name: b"TDB_VALUES".to_vec(),
            role: Role::Attribute(0),
            datatype,
            fill_value: vec![0; datatype.size()],
            ..axes().remove(0)
        });
        let mut left_out = Vec::new();
        raster.as_ref().unwrap().check(&fields, &mut left_out);
        assert_eq!(left_out.len(), reasons, "{datatype:?}");
    }
}
