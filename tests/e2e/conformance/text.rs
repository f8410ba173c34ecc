//! Texts with placeholders, and texts whose members may come in any order.

use std::{iter::Peekable, str::Chars};

use base64::{Engine, engine::general_purpose::STANDARD};
use fancy_regex::{Regex, escape};

use super::golden::Given;

/// What stands for what differs from run to run, and the form of that. The only UUIDs that differ are ids of runs.
const PLACEHOLDERS: [(&str, &str); 3] = [
    ("«uuid»", "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"),
    ("«int»", "[0-9]+"),
    ("«hex»", "[0-9a-f]+"),
];

/// How bytes are compared.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// What `«database»` stands for.
    pub database: &'a str,
    pub member_order_free: bool,
}

impl Rules<'_> {
    pub fn equal(&self, expected: Option<&Given>, got: Option<&[u8]>) -> bool {
        match (expected, got) {
            (None, None) => true,
            (Some(expected), Some(got)) => match expected {
                Given::Text(text) => self.text_equal(text, got),
                Given::Bytes { b64 } => STANDARD.decode(b64).expect("it is base64") == got,
                Given::Either { either } => either.iter().any(|text| self.text_equal(text, got)),
            },
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    fn text_equal(&self, expected: &str, got: &[u8]) -> bool {
        let Ok(got) = std::str::from_utf8(got) else { return false };
        let expected = expected.replace("«database»", self.database);
        match self.member_order_free {
            true => fits(&ordered(&expected), &ordered(got)),
            false => fits(&expected, got),
        }
    }
}

fn fits(expected: &str, got: &str) -> bool {
    if !expected.contains('«') {
        return expected == got;
    }
    let pattern =
        PLACEHOLDERS.iter().fold(escape(expected).into_owned(), |pattern, (name, form)| pattern.replace(name, form));
    let whole = Regex::new(&format!(r"\A(?:{pattern})\z")).expect("it is a regular expression");
    whole.is_match(got).expect("it does not backtrack")
}

/// The same text with the members of objects, the fields of structs and the fields of schemas in one order. What they
/// hold stays as it is, to the letter.
fn ordered(text: &str) -> String {
    // Java's struct text has no quotes of its own.
    let mut reader = Reader { rest: text.chars().peekable(), quotes: !text.starts_with("Struct{") };
    let mut whole = reader.piece();
    while let Some(stray) = reader.rest.next() {
        whole.push(stray);
        whole += &reader.piece();
    }
    whole
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    quotes: bool,
}

impl Reader<'_> {
    /// Up to a comma or a closing bracket.
    fn piece(&mut self) -> String {
        let mut piece = String::new();
        while let Some(next) = self.rest.next_if(|next| !matches!(next, ',' | '}' | ']')) {
            piece.push(next);
            match next {
                '"' if self.quotes => self.string(&mut piece),
                '{' => self.pieces(true, &mut piece),
                '[' => self.pieces(piece.ends_with("\"fields\":["), &mut piece),
                _ => {}
            }
        }
        piece
    }

    /// Up to the closing bracket, which is taken too.
    fn pieces(&mut self, sort: bool, whole: &mut String) {
        let mut pieces = vec![self.piece()];
        let mut end = self.rest.next();
        while end == Some(',') {
            pieces.push(self.piece());
            end = self.rest.next();
        }
        if sort {
            pieces.sort();
        }
        *whole += &pieces.join(",");
        whole.extend(end);
    }

    fn string(&mut self, whole: &mut String) {
        let mut escaped = false;
        for next in self.rest.by_ref() {
            whole.push(next);
            if next == '"' && !escaped {
                break;
            }
            escaped = next == '\\' && !escaped;
        }
    }
}

/// A text that fits, for tests of what compares.
pub fn example(expected: &Given, database: &str) -> Vec<u8> {
    let text = match expected {
        Given::Text(text) => text,
        Given::Bytes { b64 } => return STANDARD.decode(b64).expect("it is base64"),
        Given::Either { either } => &either[0],
    };
    [
        ("«uuid»", "0194a3c2-5d1e-7f3a-9b7c-2f6d8e4a1b0c"),
        ("«int»", "1733000000"),
        ("«hex»", "1b2c3d4e5f607182"),
        ("«database»", database),
    ]
    .iter()
    .fold(text.clone(), |text, (name, value)| text.replace(name, value))
    .into_bytes()
}

mod tests {
    use super::*;

    fn equal(expected: &str, got: &str, member_order_free: bool) -> bool {
        let rules = Rules { database: "db", member_order_free };
        rules.equal(Some(&Given::Text(expected.to_owned())), Some(got.as_bytes()))
    }

    #[test]
    fn a_placeholder_stands_for_its_form_alone() {
        let id = "0194a3c2-5d1e-7f3a-9b7c-2f6d8e4a1b0c";
        assert!(equal("a«uuid»(.)", &format!("a{id}(.)"), false));
        assert!(!equal("a«uuid»(.)", &format!("a{id}(x)"), false));
        assert!(!equal("«uuid»", &id.replace("-7", "-4"), false));
        assert!(!equal("«uuid»", &format!("{id} "), false));
        assert!(!equal("«uuid»", &format!("{id}\n"), false));
        assert!(equal("«int»:«int»", "12:0", false));
        assert!(!equal("«int»:«int»", "12:", false));
        assert!(!equal("«int»", "1a", false));
        assert!(equal("[B@«hex»", "[B@1a", false));
        assert!(!equal("[B@«hex»", "[B@1A", false));
        assert!(equal("«database».t", "db.t", false));
        assert!(!equal("«database».t", "other.t", false));
    }

    #[test]
    fn members_are_free_only_where_it_is_said() {
        let (a, b) =
            (r#"{"o":[{"a":"x,}\"","b":[2,1]},null],"p":1.0}"#, r#"{"p":1.0,"o":[{"b":[2,1],"a":"x,}\""},null]}"#);
        assert!(equal(a, b, true));
        assert!(!equal(a, b, false));
        for altered in
            [b.replace("1.0", "1.00"), b.replace("2,1", "1,2"), b.replace("null", "{}"), b.replace("x,", "x")]
        {
            assert!(!equal(a, &altered, true), "{altered}");
        }
    }

    #[test]
    fn fields_of_structs_and_schemas_are_free_too() {
        assert!(equal("Struct{o=[Struct{a=1}, Struct{b=y,a=2}]}", "Struct{o=[Struct{a=1}, Struct{a=2,b=y}]}", true));
        assert!(!equal("Struct{o=[Struct{a=1}, Struct{b=y,a=2}]}", "Struct{o=[Struct{a=2,b=y}, Struct{a=1}]}", true));
        let (a, b) = (r#"{"fields":[{"f":"a"},{"f":"b"}]}"#, r#"{"fields":[{"f":"b"},{"f":"a"}]}"#);
        assert!(equal(a, b, true));
        assert!(!equal(&a.replace("fields", "items"), &b.replace("fields", "items"), true));
    }

    #[test]
    fn null_is_no_empty_text_and_bytes_are_no_text() {
        let rules = Rules { database: "db", member_order_free: false };
        let (empty, bytes) = (Given::Text(String::new()), Given::Bytes { b64: "/w==".to_owned() });
        assert!(
            rules.equal(None, None) && rules.equal(Some(&empty), Some(b"")) && rules.equal(Some(&bytes), Some(b"\xff"))
        );
        assert!(
            !rules.equal(None, Some(b""))
                && !rules.equal(Some(&empty), None)
                && !rules.equal(Some(&bytes), Some(b"/w=="))
        );
        assert!(!rules.equal(Some(&Given::Text("\u{fffd}".to_owned())), Some(b"\xff")));
        let either = Given::Either { either: vec!["a".to_owned(), "b".to_owned()] };
        assert!(rules.equal(Some(&either), Some(b"b")) && !rules.equal(Some(&either), Some(b"c")));
    }
}
