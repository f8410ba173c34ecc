//! The text of arrays: `{1,2,NULL}`, `{a,"b c"}`, `[0:1]={{1},{2}}`.

/// An element: none for NULL, or one more dimension, whose elements nobody needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Null,
    Text(String),
    Nested,
}

/// The elements of the outermost dimension; None if the text is no array.
pub(super) fn elements(text: &str, delimiter: char) -> Option<Vec<Element>> {
    let text = match text.strip_prefix('[') {
        Some(bounds) => bounds.split_once('=')?.1,
        None => text,
    };
    let mut rest = text.strip_prefix('{')?.strip_suffix('}')?.chars().peekable();
    let mut elements = Vec::new();
    if rest.peek().is_none() {
        return Some(elements);
    }
    loop {
        let (element, ended_by) = if rest.peek() == Some(&'{') {
            (Element::Nested, skip_nested(&mut rest)?)
        } else {
            element(&mut rest, delimiter)?
        };
        elements.push(element);
        match ended_by {
            None => return Some(elements),
            Some(c) if c == delimiter => {}
            Some(_) => return None,
        }
    }
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// An element and the character behind it.
fn element(rest: &mut Chars<'_>, delimiter: char) -> Option<(Element, Option<char>)> {
    let mut text = String::new();
    let (mut quoted, mut was_quoted) = (false, false);
    loop {
        let c = rest.next();
        match c {
            Some('\\') => text.push(rest.next()?),
            Some('"') => {
                quoted = !quoted;
                was_quoted = true;
            }
            Some(c) if quoted || c != delimiter => text.push(c),
            None if quoted => return None,
            None | Some(_) => {
                let null = !was_quoted && text == "NULL";
                return Some((if null { Element::Null } else { Element::Text(text) }, c));
            }
        }
    }
}

/// The character behind the closing brace.
fn skip_nested(rest: &mut Chars<'_>) -> Option<Option<char>> {
    let (mut depth, mut quoted) = (0, false);
    loop {
        match rest.next()? {
            '\\' => _ = rest.next()?,
            '"' => quoted = !quoted,
            '{' if !quoted => depth += 1,
            '}' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(rest.next());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(array: &str) -> Vec<Option<String>> {
        let text = |element| match element {
            Element::Null => None,
            Element::Text(text) => Some(text),
            Element::Nested => Some("nested".to_owned()),
        };
        elements(array, ',').unwrap().into_iter().map(text).collect()
    }

    fn some(texts: &[&str]) -> Vec<Option<String>> {
        texts.iter().map(|text| Some((*text).to_owned())).collect()
    }

    #[test]
    fn quotes_and_backslashes_are_taken_off() {
        assert_eq!(texts(r#"{a,"b c",NULL,"q\"x"}"#), [some(&["a", "b c"]), vec![None], some(&["q\"x"])].concat());
        assert_eq!(texts(r#"{"NULL","",null,"a\\b","{,}"}"#), some(&["NULL", "", "null", r"a\b", "{,}"]));
        assert_eq!(texts("{}"), some(&[]));
        assert_eq!(texts("[0:1]={1,2}"), some(&["1", "2"]));
    }

    #[test]
    fn other_dimensions_are_told() {
        assert_eq!(texts(r#"{{1,2},{"}",3}}"#), some(&["nested", "nested"]));
        assert_eq!(elements("{(1,2),(3,4);(5,6),(7,8)}", ';').unwrap().len(), 2);
    }

    #[test]
    fn what_is_no_array_is_none() {
        for text in ["", "1,2", "{1,2", r#"{"1}"#, r"{1\", "{{1}", "{{1}x}"] {
            assert_eq!(elements(text, ','), None, "{text}");
        }
    }
}
