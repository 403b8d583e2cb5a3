//! The fields that a fragment stores, and how their tiles are filtered.

use crate::filter::{EncryptionKey, TYPED_FILTERS, TileCodec};
use crate::format::datatype::{CellValNum, Datatype};
use crate::format::field::Form;
use crate::format::fragment::Slots;
use crate::format::name::Part;
use crate::format::pipeline::{Codec, Filter, Pipeline};
use crate::format::schema::Schema;

/// What a field is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Attribute of this index in the fragment's schema.
    Attribute(usize),
    /// Dimension of this index, in files of its own (version 5 and later).
    Dimension(usize),
    /// Dimension of this index, inside the zipped coordinates (before version 5).
    ZippedDimension(usize),
    /// The coordinates of all dimensions, in one file (before version 5).
    Coordinates,
    /// The timestamp at which each cell was written.
    Timestamps,
    /// The timestamp at which each cell was deleted.
    DeleteTimestamps,
    /// The index of the condition that deleted each cell.
    DeleteConditionIndex,
}

/// A field of a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredField {
    /// Its name as stored; internal fields have TileDB's names.
    pub name: Vec<u8>,
    /// What it is.
    pub role: Role,
    /// Type of a value.
    pub datatype: Datatype,
    /// Values a cell. For [`Role::Coordinates`], the number of dimensions.
    pub cell_val_num: CellValNum,
    /// Whether it has validity bytes.
    pub nullable: bool,
    /// Its index in the lists of the fragment's metadata.
    pub slot: usize,
}

impl StoredField {
    /// The fields of a fragment with this schema and numbering, in the order of their slots; dimensions
    /// inside zipped coordinates come last.
    pub fn all(schema: &Schema, slots: &Slots, dense: bool) -> Vec<StoredField> {
        let attributes = schema
            .attributes
            .iter()
            .enumerate()
            .map(|(i, attribute)| StoredField {
                name: attribute.name.clone(),
                role: Role::Attribute(i),
                datatype: attribute.datatype,
                cell_val_num: attribute.cell_val_num,
                nullable: attribute.nullable,
                slot: slots.attribute(i),
            });
        let mut fields: Vec<StoredField> = attributes.collect();
        if dense {
            return fields;
        }
        if slots.version < 5 {
            fields.push(StoredField {
                name: b"__coords".to_vec(),
                role: Role::Coordinates,
                datatype: schema.dimensions[0].datatype,
                cell_val_num: CellValNum::Fixed(schema.dimensions.len() as u32),
                nullable: false,
                slot: slots.coords(),
            });
        }
        fields.extend(schema.dimensions.iter().enumerate().map(|(i, dimension)| {
            let (role, slot) = match slots.dimension(i) {
                Some(slot) => (Role::Dimension(i), slot),
                None => (Role::ZippedDimension(i), slots.coords()),
            };
            StoredField {
                name: dimension.name.clone(),
                role,
                datatype: dimension.datatype,
                cell_val_num: dimension.cell_val_num,
                nullable: false,
                slot,
            }
        }));
        let internal = [
            (Role::Timestamps, slots.timestamps(), "__timestamps"),
            (
                Role::DeleteTimestamps,
                slots.delete_timestamps(),
                "__delete_timestamps",
            ),
            (
                Role::DeleteConditionIndex,
                slots.delete_condition_index(),
                "__delete_condition_index",
            ),
        ];
        fields.extend(internal.into_iter().filter_map(|(role, slot, name)| {
            Some(StoredField {
                name: name.as_bytes().to_vec(),
                role,
                datatype: Datatype::Uint64,
                cell_val_num: CellValNum::Fixed(1),
                nullable: false,
                slot: slot?,
            })
        }));
        fields
    }

    /// What its stored bytes depend on.
    pub fn form(&self) -> Form {
        Form {
            datatype: self.datatype,
            cell_val_num: self.cell_val_num,
            nullable: self.nullable,
        }
    }

    /// Bytes of a cell; None when var-sized. For a dimension inside zipped coordinates, those of its own
    /// value.
    pub fn cell_size(&self) -> Option<u64> {
        self.cell_val_num.cell_size(self.datatype)
    }

    /// The base of its file names from version 9 on; for internal fields in every version.
    pub fn index_name(&self) -> String {
        match self.role {
            Role::Attribute(i) => format!("a{i}"),
            Role::Dimension(i) => format!("d{i}"),
            Role::ZippedDimension(_) | Role::Coordinates => "__coords".into(),
            Role::Timestamps => "t".into(),
            Role::DeleteTimestamps => "dt".into(),
            Role::DeleteConditionIndex => "dci".into(),
        }
    }

    /// The base of its file names before version 9.
    pub fn file_base(&self) -> Vec<u8> {
        match self.role {
            Role::Attribute(_) | Role::Dimension(_) => self.name.clone(),
            _ => self.index_name().into_bytes(),
        }
    }

    /// The pipeline of its values.
    fn data_filters<'a>(&self, schema: &'a Schema) -> &'a Pipeline {
        match self.role {
            Role::Attribute(i) => &schema.attributes[i].filters,
            Role::Dimension(i) => schema.dimension_filters(i),
            _ => &schema.coords_filters,
        }
    }

    /// Whether its first filter, string RLE or dictionary encoding, may embed the offsets in the values. If
    /// it did, the offsets tile has no chunks.
    pub fn may_embed_offsets(&self, schema: &Schema) -> bool {
        let Some(Filter::Compression { codec, .. }) = self.data_filters(schema).filters.first() else {
            return false;
        };
        self.cell_val_num.is_var()
            && matches!(self.datatype, Datatype::StringAscii | Datatype::StringUtf8)
            && matches!(codec, Codec::Rle | Codec::Dictionary)
    }

    /// Whether its filters are lossy, so that readers get other values than were written.
    pub fn is_lossy(&self, schema: &Schema) -> bool {
        self.data_filters(schema).is_lossy()
    }

    /// The filters of one of its files, as the schema has them. `None` for a validity file in a schema
    /// without validity filters.
    pub fn filters<'s>(&'s self, schema: &'s Schema, part: Part) -> Option<&'s Pipeline> {
        match (part, self.cell_size()) {
            (Part::Fixed, None) => Some(&schema.offsets_filters),
            (Part::Fixed | Part::Var, _) => Some(self.data_filters(schema)),
            (Part::Validity, _) => schema.validity_filters.as_ref(),
        }
    }

    /// The type that the first filter of fixed-size values saw. In schemas below version 5 the coordinates'
    /// pipeline is one of coordinates, and libraries that give filters their types from the schema
    /// ([`TileCodec`]) filter timestamps as such; older ones gave the type of the tile.
    fn first_type(&self, schema: &Schema, writer: &Writer) -> Datatype {
        match self.role {
            Role::Timestamps | Role::DeleteTimestamps | Role::DeleteConditionIndex
                if schema.version < 5 && writer.library_version >= TYPED_FILTERS =>
            {
                schema.dimensions[0].datatype
            }
            _ => self.datatype,
        }
    }

    /// How the tiles of one of its files are filtered. `None` for a validity file in a schema without
    /// validity filters.
    pub fn codec(&self, schema: &Schema, part: Part, writer: &Writer) -> Option<TileCodec> {
        let (datatype, cell_size) = match (part, self.cell_size()) {
            (Part::Fixed, Some(cell_size)) => {
                let cells = match self.role {
                    Role::ZippedDimension(_) => schema.dimensions.len() as u64,
                    _ => 1,
                };
                (self.first_type(schema, writer), cell_size * cells)
            }
            (Part::Fixed, None) => (Datatype::Uint64, 8),
            (Part::Var, _) => (self.datatype, self.datatype.size() as u64),
            (Part::Validity, _) => (Datatype::Uint8, 1),
        };
        let codec = TileCodec::new(
            self.filters(schema, part)?.clone(),
            datatype,
            cell_size,
            writer.fragment_version,
            writer.library_version,
        );
        Some(if writer.encrypted {
            codec.encrypted_with(writer.key.clone())
        } else {
            codec
        })
    }
}

/// What is known of the writer of a fragment.
#[derive(Debug, Clone)]
pub struct Writer {
    /// Format version of the fragment.
    pub fragment_version: u32,
    /// Format version of the library, which is that of the generic tiles in the fragment's metadata.
    pub library_version: u32,
    /// Whether tiles are encrypted.
    pub encrypted: bool,
    /// The key, where one was given.
    pub key: Option<EncryptionKey>,
}
