//! Thrift's compact protocol, as far as Parquet's metadata needs it.
//!
//! A struct is its fields in ascending order of their numbers and a zero byte. A field begins with a byte of
//! the distance to the number of the previous field (at most 15) and the type. Integers are zigzag varints,
//! text is a varint of its length and its bytes.

/// Types of fields and of the elements of lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u8)]
pub enum Type {
    True = 1,
    False = 2,
    I8 = 3,
    I16 = 4,
    I32 = 5,
    I64 = 6,
    Binary = 8,
    List = 9,
    Struct = 12,
}

/// Appends `value` as a varint: seven bits per byte, least significant first; all bytes but the last have the
/// highest bit set.
pub fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes of the varint of `value`.
pub fn varint_len(value: u64) -> u64 {
    u64::from((u64::BITS - value.leading_zeros()).div_ceil(7).max(1))
}

/// Bytes of `value` as an integer field, without its header.
pub fn integer_len(value: i64) -> u64 {
    varint_len(zigzag(value))
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// Writes structs. A new writer is inside the outermost struct.
#[derive(Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
    /// The number of the last field of the struct that is written.
    field: u8,
}

impl Writer {
    /// The bytes so far, without the end of the outermost struct.
    pub fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// The whole struct.
    pub fn finish(mut self) -> Vec<u8> {
        self.out.push(0);
        self.out
    }

    fn header(&mut self, field: u8, of: Type) {
        let distance = field - self.field;
        debug_assert!(
            (1..=15).contains(&distance),
            "field {field} follows {}",
            self.field
        );
        self.out.push(distance << 4 | of as u8);
        self.field = field;
    }

    /// A field that is true or false.
    pub fn bool(&mut self, field: u8, value: bool) {
        self.header(field, if value { Type::True } else { Type::False });
    }

    /// A field of one byte.
    pub fn i8(&mut self, field: u8, value: i8) {
        self.header(field, Type::I8);
        self.out.push(value.cast_unsigned());
    }

    /// A field of 16 bits.
    pub fn i16(&mut self, field: u8, value: i16) {
        self.header(field, Type::I16);
        varint(zigzag(i64::from(value)), &mut self.out);
    }

    /// A field of 32 bits.
    pub fn i32(&mut self, field: u8, value: i32) {
        self.header(field, Type::I32);
        varint(zigzag(i64::from(value)), &mut self.out);
    }

    /// A field of 64 bits.
    pub fn i64(&mut self, field: u8, value: i64) {
        self.header(field, Type::I64);
        varint(zigzag(value), &mut self.out);
    }

    /// A field of bytes.
    pub fn binary(&mut self, field: u8, value: &[u8]) {
        self.header(field, Type::Binary);
        self.binary_element(value);
    }

    /// Begins a list of `count` elements, which follow.
    pub fn list(&mut self, field: u8, of: Type, count: usize) {
        self.header(field, Type::List);
        match u8::try_from(count) {
            Ok(count @ ..15) => self.out.push(count << 4 | of as u8),
            _ => {
                self.out.push(0xF0 | of as u8);
                varint(count as u64, &mut self.out);
            }
        }
    }

    /// An element of bytes.
    pub fn binary_element(&mut self, value: &[u8]) {
        varint(value.len() as u64, &mut self.out);
        self.out.extend_from_slice(value);
    }

    /// An element of 32 bits.
    pub fn i32_element(&mut self, value: i32) {
        varint(zigzag(i64::from(value)), &mut self.out);
    }

    /// A field that is a struct, whose fields `write` writes.
    pub fn structure(&mut self, field: u8, write: impl FnOnce(&mut Writer)) {
        self.header(field, Type::Struct);
        self.element(write);
    }

    /// An element that is a struct.
    pub fn element(&mut self, write: impl FnOnce(&mut Writer)) {
        let outer = std::mem::take(&mut self.field);
        write(self);
        self.field = outer;
        self.out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_take_as_many_bytes_as_is_said() {
        for value in [0, 1, 63, 64, -64, -65, 8191, 8192, i64::MAX, i64::MIN] {
            let mut writer = Writer::default();
            writer.i64(1, value);
            assert_eq!(writer.bytes().len() as u64, 1 + integer_len(value), "{value}");
        }
        for value in [0, 127, 128, 16_383, 16_384, u64::MAX] {
            let mut out = Vec::new();
            varint(value, &mut out);
            assert_eq!(out.len() as u64, varint_len(value), "{value}");
        }
    }

    #[test]
    fn structs_are_written_as_the_protocol_has_them() {
        let mut writer = Writer::default();
        writer.i32(1, 2);
        writer.list(3, Type::I32, 2);
        writer.i32_element(-1);
        writer.i32_element(300);
        writer.structure(5, |writer| {
            writer.binary(1, b"ab");
            writer.bool(2, true);
            writer.bool(15, false);
        });
        writer.i16(6, 1);
        writer.i8(7, -1);
        let bytes = writer.finish();
        assert_eq!(
            bytes,
            [
                0x15, 4, 0x29, 0x25, 1, 0xD8, 4, 0x2C, 0x18, 2, b'a', b'b', 0x11, 0xD2, 0, 0x14, 2, 0x13,
                0xFF, 0
            ]
        );
        let mut long = Writer::default();
        long.list(1, Type::Struct, 15);
        assert_eq!(long.bytes(), [0x19, 0xFC, 15]);
    }
}
