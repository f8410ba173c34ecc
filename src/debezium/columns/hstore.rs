//! hstore: `"a"=>"1", "b"=>NULL`, in the order in which a Java `HashMap` gives the pairs out.

/// Keys and values; None if the text is no hstore.
pub(super) fn pairs(text: &str) -> Option<Vec<(String, Option<String>)>> {
    let mut pairs: Vec<(String, Option<String>)> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (key, behind_key) = quoted(rest)?;
        let value = behind_key.strip_prefix("=>")?;
        let (value, behind_value) = match value.strip_prefix("NULL") {
            Some(behind_null) => (None, behind_null),
            None => quoted(value).map(|(value, rest)| (Some(value), rest))?,
        };
        pairs.push((key, value));
        rest = match behind_value.strip_prefix(", ") {
            Some(more) => more,
            None if behind_value.is_empty() => "",
            None => return None,
        };
    }
    hash_map_order(&mut pairs);
    Some(pairs)
}

/// A JSON object as Jackson writes it to text: only what must be escaped is.
pub(super) fn json(pairs: &[(String, Option<String>)]) -> String {
    let mut json = String::from("{");
    for (i, (key, value)) in pairs.iter().enumerate() {
        if i > 0 {
            json.push(',');
        }
        push_json_string(&mut json, key);
        json.push(':');
        match value {
            Some(value) => push_json_string(&mut json, value),
            None => json.push_str("null"),
        }
    }
    json.push('}');
    json
}

fn push_json_string(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\u{8}' => json.push_str("\\b"),
            '\t' => json.push_str("\\t"),
            '\n' => json.push_str("\\n"),
            '\u{c}' => json.push_str("\\f"),
            '\r' => json.push_str("\\r"),
            '\0'..='\u{1f}' => json.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => json.push(c),
        }
    }
    json.push('"');
}

/// A string in quotes and what is behind it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut chars = text.strip_prefix('"')?.char_indices();
    let mut string = String::new();
    loop {
        match chars.next()? {
            (at, '"') => return Some((string, &text[at + 2..])),
            (_, '\\') => string.push(chars.next()?.1),
            (_, c) => string.push(c),
        }
    }
}

/// Of `java.util.HashMap` after these insertions. Its table doubles beyond three quarters of its size; a pair is in
/// the bucket that the hash's low bits name, behind those that were there before.
fn hash_map_order(pairs: &mut [(String, Option<String>)]) {
    let mut buckets = 16;
    while pairs.len() > buckets / 4 * 3 {
        buckets *= 2;
    }
    pairs.sort_by_cached_key(|(key, _)| {
        let hash = key.encode_utf16().fold(0_u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)));
        (hash ^ (hash >> 16)) as usize & (buckets - 1)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read() {
        assert_eq!(json(&pairs(r#""a"=>"1", "b"=>NULL"#).unwrap()), r#"{"a":"1","b":null}"#);
        assert_eq!(json(&pairs("").unwrap()), "{}");
        assert_eq!(
            json(&pairs("\"a\\\"b\"=>\"NULL\", \"é\\\\\"=>\"\n\u{1f}😀/\"").unwrap()),
            r#"{"a\"b":"NULL","é\\":"\n\u001F😀/"}"#
        );
        for text in ["a=>1", r#""a""#, r#""a"=>"#, r#""a"=>"1""b"=>"2""#, r#""a"=>"1"#] {
            assert_eq!(pairs(text), None, "{text}");
        }
    }

    /// As `new HashMap<>()` of Java 17 gives them out.
    #[test]
    fn the_order_is_a_hash_maps() {
        let order = |keys: Vec<String>| {
            let mut pairs: Vec<_> = keys.into_iter().map(|key| (key, None)).collect();
            hash_map_order(&mut pairs);
            pairs.into_iter().map(|(key, _)| key).collect::<Vec<_>>().join(" ")
        };
        let words = ["zeta", "alpha", "b", "a", "order-id", "x"].map(str::to_owned).to_vec();
        assert_eq!(order(words), "zeta a b alpha x order-id");
        let numbered = (0..30).map(|i| format!("key{}", i * 7)).collect();
        assert_eq!(
            order(numbered),
            "key0 key119 key84 key7 key154 key21 key175 key42 key112 key63 key133 key14 key35 key196 key56 key91 key147 \
             key168 key105 key70 key126 key203 key77 key98 key189 key161 key182 key140 key28 key49"
        );
    }
}
