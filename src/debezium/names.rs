//! Names that Avro allows: `field.name.adjustment.mode` and `schema.name.adjustment.mode`.

use super::modes::NameAdjustment;

impl NameAdjustment {
    /// The name of a struct's field.
    pub fn field(self, name: &str) -> String {
        self.adjust(name, false)
    }

    /// The name of a schema, which may have dots.
    pub fn schema(self, name: &str) -> String {
        self.adjust(name, true)
    }

    fn adjust(self, name: &str, dots: bool) -> String {
        if self == NameAdjustment::None {
            return name.to_owned();
        }
        let mut adjusted = String::with_capacity(name.len());
        for (i, unit) in name.encode_utf16().enumerate() {
            let ascii = u8::try_from(unit).map_or('\u{ff}', char::from);
            let allowed = match ascii {
                'a'..='z' | 'A'..='Z' => true,
                '_' => self == NameAdjustment::Avro,
                '0'..='9' => i > 0,
                '.' => i > 0 && dots,
                _ => false,
            };
            match self {
                _ if allowed => adjusted.push(ascii),
                NameAdjustment::AvroUnicode if unit <= 0xff => adjusted.push_str(&format!("_u00{unit:x}")),
                NameAdjustment::AvroUnicode => adjusted.push_str(&format!("_u{unit:x}")),
                NameAdjustment::Avro | NameAdjustment::None => {
                    adjusted.push('_');
                    if i == 0 && ascii.is_ascii_digit() {
                        adjusted.push(ascii);
                    }
                }
            }
        }
        adjusted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn avro_takes_letters_digits_and_underscores() {
        let avro = NameAdjustment::Avro;
        assert_eq!(avro.field("a-b"), "a_b");
        assert_eq!(avro.field("1x"), "_1x");
        assert_eq!(avro.field("a.b"), "a_b");
        assert_eq!(avro.schema("dbz.my-db.Value"), "dbz.my_db.Value");
        assert_eq!(avro.field("é😀"), "___");
        assert_eq!(NameAdjustment::None.field("a-b"), "a-b");
    }

    #[test]
    fn unicode_escapes_underscores_too() {
        let unicode = NameAdjustment::AvroUnicode;
        assert_eq!(unicode.field("a-b"), "a_u002db");
        assert_eq!(unicode.field("a_b"), "a_u005fb");
        assert_eq!(unicode.field("日1"), "_u65e51");
        assert_eq!(unicode.field("1x"), "_u0031x");
        // Three digits get no fourth.
        assert_eq!(unicode.field("ő"), "_u151");
    }
}
