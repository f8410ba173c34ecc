//! The connector's options that decide how values look, each with the names that it has in the configuration.

/// An option with named values: the enum, its names, and how its value is read.
macro_rules! option {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            pub const NAMES: &[&str] = &[$($text),+];

            /// As Debezium reads it: blanks around and the case do not count. None for any other name.
            pub fn parse(text: &str) -> Option<$name> {
                let text = text.trim();
                $(if text.eq_ignore_ascii_case($text) { return Some($name::$variant); })+
                None
            }

            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
        }
    };
}
pub(crate) use option;

option! {
    /// `decimal.handling.mode`
    DecimalMode { Precise = "precise", String = "string", Double = "double" }
}

option! {
    /// `time.precision.mode`
    TimeMode {
        Adaptive = "adaptive",
        AdaptiveTimeMicroseconds = "adaptive_time_microseconds",
        IsoString = "isostring",
        Connect = "connect",
        Microseconds = "microseconds",
        Nanoseconds = "nanoseconds",
    }
}

option! {
    /// `binary.handling.mode`
    BinaryMode { Bytes = "bytes", Base64 = "base64", Base64UrlSafe = "base64-url-safe", Hex = "hex" }
}

option! {
    /// `interval.handling.mode`
    IntervalMode { Numeric = "numeric", String = "string" }
}

option! {
    /// `hstore.handling.mode`
    HstoreMode { Json = "json", Map = "map" }
}

option! {
    /// `event.converting.failure.handling.mode`
    FailureMode {
        /// The value that has no form stops the task: here, the event is poison.
        Fail = "fail",
        /// It is null.
        Warn = "warn",
        Skip = "skip",
    }
}

option! {
    /// `field.name.adjustment.mode` and `schema.name.adjustment.mode`
    NameAdjustment { None = "none", Avro = "avro", AvroUnicode = "avro_unicode" }
}

/// How values look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modes {
    pub decimal: DecimalMode,
    pub time: TimeMode,
    pub binary: BinaryMode,
    pub interval: IntervalMode,
    pub hstore: HstoreMode,
    pub money_fraction_digits: u16,
    pub include_unknown_datatypes: bool,
    pub failures: FailureMode,
    pub field_names: NameAdjustment,
    /// Stands for a value that an update left untouched and the log does not have.
    pub unavailable_value_placeholder: Vec<u8>,
}

impl Default for Modes {
    fn default() -> Modes {
        Modes {
            decimal: DecimalMode::Precise,
            time: TimeMode::Adaptive,
            binary: BinaryMode::Bytes,
            interval: IntervalMode::Numeric,
            hstore: HstoreMode::Json,
            money_fraction_digits: 2,
            include_unknown_datatypes: false,
            failures: FailureMode::Warn,
            field_names: NameAdjustment::None,
            unavailable_value_placeholder: b"__debezium_unavailable_value".to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_without_case_and_blanks() {
        assert_eq!(TimeMode::parse(" Adaptive_Time_Microseconds "), Some(TimeMode::AdaptiveTimeMicroseconds));
        assert_eq!(BinaryMode::parse("base64-url-safe"), Some(BinaryMode::Base64UrlSafe));
        assert_eq!(DecimalMode::parse("exact"), None);
        assert_eq!(HstoreMode::NAMES, ["json", "map"]);
    }
}
