use super::*;
use crate::export::tests::{OneTile, array_of_a, raster, write_metadata, write_raster, written};
use crate::query::testing::open;

fn image(shape: [u64; 2], samples: u64, planar: bool) -> Image {
    Image {
        width: shape[1],
        height: shape[0],
        samples,
        planar,
        bits: 16,
        format: 1,
        rgb: false,
        nodata: None,
        missing: None,
        geo: Geo::default(),
        is_reduced: false,
    }
}

fn bytes(parts: Vec<Box<dyn Bytes>>) -> Vec<u8> {
    let layout = FileLayout::new(0, parts).unwrap();
    let whole = Output::of(|out| layout.read(0..layout.len(), out))
        .unwrap()
        .to_vec();
    assert_eq!(whole.len() as u64, layout.len());
    for start in 0..whole.len().min(600) {
        let end = (start + 1 + start % 13).min(whole.len());
        let piece = Output::of(|out| layout.read(start as u64..end as u64, out)).unwrap();
        assert_eq!(*piece, whole[start..end]);
    }
    whole
}

#[test]
fn the_example_is_as_it_is_documented() {
    let lines = include_str!("../tiff.rs").lines();
    let lines = lines.take_while(|line| !line.starts_with("use "));
    let mut documented = vec![0; 192];
    for line in lines.filter_map(|line| line.strip_prefix("//! ")) {
        let Some((place, rest)) = line.get(..3).zip(line.get(3..)) else {
            continue;
        };
        let Ok(place) = place.trim().parse::<usize>() else {
            continue;
        };
        let words = rest.split_whitespace().take(12);
        let hex = words.map_while(|word| u8::from_str_radix(word, 16).ok().filter(|_| word.len() == 2));
        let hex: Vec<u8> = hex.collect();
        documented.resize(documented.len().max(place + hex.len()), 0);
        documented[place..place + hex.len()].copy_from_slice(&hex);
    }
    let mut whole = bytes(head(&[image([2, 3], 1, false)]));
    whole.extend((1u16..=6).flat_map(u16::to_le_bytes));
    assert_eq!(whole.len(), 204);
    assert_eq!(whole, documented);
}

/// The values of a tag of the first image, read by the rules of TIFF's specification.
fn tag(file: &[u8], wanted: u64) -> Option<Vec<u64>> {
    tag_of(file, 0, wanted)
}

/// The values of a tag of an image by its number; None if the image has no such tag.
fn tag_of(file: &[u8], image: usize, wanted: u64) -> Option<Vec<u64>> {
    let number = |at: u64, size: u64| {
        let bytes = file[at as usize..][..size as usize].iter().rev();
        bytes.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let big = number(2, 2) == 43;
    let (address, count, entry) = if big { (8, 8, 20) } else { (4, 2, 12) };
    let mut directory = number(address, address);
    for _ in 0..image {
        let end = directory + count + entry * number(directory, count);
        directory = number(end, address);
        assert!(
            directory > end && directory.is_multiple_of(8),
            "directories ascend"
        );
    }
    let mut before = 0;
    let mut found = None;
    for i in 0..number(directory, count) {
        let at = directory + count + entry * i;
        let size = [0, 1, 1, 2, 4, 8]
            .get(number(at + 2, 2) as usize)
            .copied()
            .unwrap_or(8);
        assert!(number(at, 2) > before, "tags ascend");
        before = number(at, 2);
        let values = number(at + 4, address);
        let inside = values * size <= address;
        let place = if inside {
            at + 4 + address
        } else {
            number(at + 4 + address, address)
        };
        assert!(inside || place % 8 == 0);
        if before == wanted {
            found = Some((0..values).map(|i| number(place + i * size, size)).collect());
        }
    }
    found
}

#[test]
fn bands_strips_and_colours_are_told() {
    let head = bytes(head(&[image([300, 511], 4, true)]));
    let strips = 300u64.div_ceil((256 << 10) / 1022);
    let (offsets, lengths) = (tag(&head, 273).unwrap(), tag(&head, 279).unwrap());
    assert_eq!(
        (offsets.len() as u64, lengths.len() as u64),
        (4 * strips, 4 * strips)
    );
    assert_eq!(offsets[0], head.len() as u64);
    assert!(offsets[0].is_multiple_of(ALIGNMENT));
    for (i, pair) in offsets.windows(2).enumerate() {
        assert_eq!(pair[0] + lengths[i], pair[1]);
    }
    assert_eq!(lengths.iter().sum::<u64>(), 4 * 300 * 1022);
    assert_eq!(tag(&head, 284), Some(vec![2]));
    assert_eq!(tag(&head, 338), Some(vec![0; 3]));
    assert_eq!(tag(&head, 258), Some(vec![16; 4]));

    let colours = Image {
        rgb: true,
        nodata: Some("7".to_owned()),
        ..image([5, 7], 4, false)
    };
    let head = bytes(super::head(&[colours]));
    assert_eq!(tag(&head, 262), Some(vec![2]));
    assert_eq!(tag(&head, 338), Some(vec![2]));
    assert_eq!(tag(&head, 42113), Some(vec![55, 0]));
    assert_eq!(tag(&head, 279), Some(vec![5 * 7 * 8]));
}

#[test]
fn null_pixels_of_a_raster_have_a_value() {
    let has_nodata = [false, true].map(|nullable| {
        let view = raster(Datatype::DatetimeDay, nullable, false);
        let layout = layout(&view, 2..3).unwrap();
        let file = Output::of(|out| layout.read(0..layout.len(), out)).unwrap();
        tag(&file, 42113).is_some()
    });
    assert_eq!(has_nodata, [false, true]);
}

#[test]
fn the_no_data_value_is_one_that_readers_take() {
    use Datatype::*;
    let stored = |number: f64, datatype| Scalar::Float64(number).to(datatype).unwrap();
    let of = |datatype, told: f64| {
        let bytes = stored(told, datatype);
        nodata(datatype, Some(Scalar::Float64(told)), Some(&bytes)).unwrap()
    };
    // More than the least of FLOAT32, and GDAL's digits of it.
    assert_eq!(of(Float32, -3.40282346638529e38), "-3.4028234663852886e38");
    assert_eq!(
        (of(Float32, 0.1), of(Float64, -3.5e38)),
        ("1e-1".to_owned(), "-3.5e38".to_owned())
    );
    assert_eq!(
        (of(Int16, -999.0), of(Float32, f64::NAN)),
        ("-999".to_owned(), "nan".to_owned())
    );
    assert_eq!(nodata(Int16, None, Some(&[7, 0])).as_deref(), Some("7"));
    assert_eq!(nodata(Int16, None, None), None);
}

#[test]
fn the_fill_value_of_the_metadata_is_the_no_data_value() {
    let mut storage = array_of_a(Datatype::Int16);
    write_metadata(
        &mut storage,
        &[(
            "__tiledb_attr.a._FillValue",
            Datatype::Int64,
            &(-999i64).to_le_bytes(),
        )],
    );
    let view = Arc::new(View::new(open(&storage).0, None, None).unwrap());
    let layout = layout(&view, 2..3).unwrap();
    let file = Output::of(|out| layout.read(0..layout.len(), out)).unwrap();
    let text = tag(&file, 42113).unwrap().into_iter().map(|byte| byte as u8);
    assert_eq!(text.collect::<Vec<_>>(), b"-999\0");
}

#[test]
fn images_of_a_file_follow_each_other() {
    for (height, magic) in [(300, 42), (1 << 22, 43)] {
        let levels = [0, 1, 2].map(|level| Image {
            is_reduced: true,
            nodata: Some("7".to_owned()),
            ..image([height >> level, 511 >> level], 3, level == 1)
        });
        let head = bytes(head(&levels));
        assert_eq!(head[2], magic);
        let mut end = head.len() as u64;
        for (number, level) in levels.iter().enumerate() {
            let tag = |wanted| tag_of(&head, number, wanted);
            assert_eq!((tag(254), tag(256)), (Some(vec![1]), Some(vec![level.width])));
            assert_eq!(
                (tag(257), tag(42113)),
                (Some(vec![level.height]), Some(vec![55, 0]))
            );
            for (offset, length) in tag(273).unwrap().into_iter().zip(tag(279).unwrap()) {
                assert_eq!(offset, end);
                end += length;
            }
        }
        let data: u64 = levels.iter().map(Image::data).sum();
        assert_eq!(end, head.len() as u64 + data);
    }
}

#[test]
fn overviews_have_the_same_bands_and_no_more_pixels() {
    let large = image([20, 30], 3, true);
    assert!(image([10, 15], 3, true).is_overview_of(&large));
    assert!(image([20, 15], 3, true).is_overview_of(&large));
    for other in [
        image([21, 15], 3, true),
        image([10, 31], 3, true),
        image([10, 15], 1, true),
        image([10, 15], 3, false),
        Image {
            bits: 8,
            ..image([10, 15], 3, true)
        },
        Image {
            format: 2,
            ..image([10, 15], 3, true)
        },
    ] {
        assert!(!other.is_overview_of(&large));
    }
}

#[test]
fn a_plane_has_few_strips() {
    let tall = image([1 << 30, 1], 1, false);
    assert_eq!((tall.rows(), tall.strips()), (1 << 17, 1 << 13));
    let wide = image([1 << 20, 1 << 20], 1, false);
    assert_eq!((wide.rows(), wide.strips()), (16, 1 << 16));
    assert_eq!(image([1, 1], 1, false).strips(), 1);
}

#[test]
fn a_file_of_2_to_the_32_bytes_is_a_big_one() {
    // Rows of 64 KiB, so that the last height below the limit may or may not leave room for the head.
    for rows in [(1 << 16) - 9, (1 << 16) - 2, (1 << 16) - 1, 1 << 16, 1 << 20] {
        let image = image([rows, 1 << 15], 1, false);
        let classic = head_as(std::slice::from_ref(&image), false).1 + image.plane() < 1 << 32;
        let head = bytes(head(std::slice::from_ref(&image)));
        assert_eq!(head[2], if classic { 42 } else { 43 }, "{rows}");
        let (offsets, lengths) = (tag(&head, 273).unwrap(), tag(&head, 279).unwrap());
        assert_eq!(offsets[0], head.len() as u64);
        let end = head.len() as u64 + image.plane();
        assert_eq!(offsets.last().unwrap() + lengths.last().unwrap(), end);
    }
    let is_big = |rows| bytes(head(&[image([rows, 1 << 15], 1, false)]))[2] == 43;
    assert!(!is_big((1 << 16) - 9) && is_big(1 << 16));
}

#[test]
fn the_tables_of_very_many_strips_are_made_when_they_are_read() {
    let many = image([1 << 20, 1 << 18], MAX_SAMPLES, true);
    let layout = FileLayout::new(0, head(&[many])).unwrap();
    // 65,535 planes of 65,536 strips; an offset and a length of 8 bytes each.
    assert!(layout.len() > 16 * (MAX_SAMPLES << 16));
    let end = layout.len();
    assert_eq!(
        Output::of(|out| layout.read(end - (1 << 17)..end, out))
            .unwrap()
            .len(),
        1 << 17
    );
}

#[test]
fn no_data_is_told_in_digits() {
    assert_eq!(digits(Scalar::Signed(i64::MIN)), "-9223372036854775808");
    assert_eq!(digits(Scalar::Unsigned(u64::MAX)), "18446744073709551615");
    assert_eq!(digits(Scalar::Float32(f32::NAN)), "nan");
    assert_eq!(digits(Scalar::Float64(-1.5)), "-1.5e0");
    assert_eq!(digits(Scalar::Float64(f64::NEG_INFINITY)), "-inf");
    assert_eq!(digits(Scalar::Float32(0.1)), "1.0000000149011612e-1");
}

#[test]
fn axes_of_length_1_are_left_out_until_three_are_left() {
    let cases: [(&[u64], &[u64]); 7] = [
        (&[1, 5], &[1, 5]),
        (&[1, 5, 6], &[1, 5, 6]),
        (&[1, 3, 1, 5, 6], &[3, 5, 6]),
        (&[1, 1, 1, 1, 1], &[1, 1, 1]),
        (&[2, 3, 1, 1], &[2, 3, 1, 1]),
        (&[7, 1, 8, 3], &[7, 8, 3]),
        (&[1, 2, 3, 4, 5], &[2, 3, 4, 5]),
    ];
    for (shape, shown) in cases {
        assert_eq!(shown_axes(shape.to_vec()), shown);
    }
}

#[test]
fn bands_that_gdal_calls_otherwise_are_no_colour() {
    let of = |colour: Option<&str>| {
        Some(Band {
            colour: colour.map(str::to_owned),
            ..Band::default()
        })
    };
    let [none, red, grey, alpha] = [None, Some("Red"), Some("Gray"), Some("Alpha")].map(of);
    let [none, red, grey, alpha] = [&none, &red, &grey, &alpha].map(Option::as_ref);
    assert!(are_colours(&[None, None, None]) && are_colours(&[red, none, None, alpha]));
    assert!(!are_colours(&[grey, None, None, None]) && !are_colours(&[None, red, None]));
}

#[test]
fn complex_numbers_of_gdal_are_one_sample() {
    for (datatype, bits, format) in [(Datatype::Int16, 32, 5), (Datatype::Float64, 128, 6)] {
        let mut storage = written(&OneTile {
            dimensions: &[("BANDS", 2), ("Y", 3), ("X", 4)],
            attributes: &[("a", datatype, 2, false)],
        });
        let plain = View::new(open(&storage).0, None, None).unwrap();
        let reason = absent(&plain, 3..4).unwrap().unwrap();
        assert!(reason.contains("several values"), "{reason}");
        write_raster(&mut storage, [3, 2], false);
        let view = Arc::new(View::new(open(&storage).0, None, None).unwrap());
        assert_eq!(absent(&view, 3..4).unwrap(), None);
        let layout = layout(&view, 3..4).unwrap();
        let file = Output::of(|out| layout.read(0..layout.len(), out)).unwrap();
        let tags = [256, 257, 258, 277, 279, 339].map(|wanted| tag(&file, wanted).unwrap());
        let band = 3 * 2 * bits / 8;
        let expected = [
            vec![3],
            vec![2],
            vec![bits; 2],
            vec![2],
            vec![band; 2],
            vec![format; 2],
        ];
        assert_eq!(tags, expected);
        assert_eq!(file.len() as u64, tag(&file, 273).unwrap()[1] + band);
    }
}

#[test]
fn overviews_are_found_in_any_order() {
    let of = |[rows, columns]: [u64; 2]| {
        let storage = written(&OneTile {
            dimensions: &[("y", rows), ("x", columns)],
            attributes: &[("a", Datatype::Uint8, 1, false)],
        });
        Arc::new(View::new(open(&storage).0, None, None).unwrap())
    };
    let smaller = [[2, 2], [8, 8], [20, 1], [4, 4]].map(of);
    let found = overviews(&of([16, 16]), OsStr::new("a.tif"), &smaller).unwrap();
    let rows = found.iter().map(|(view, _)| view.shape().unwrap()[0]);
    assert_eq!(rows.collect::<Vec<_>>(), [8, 4, 2]);
}
