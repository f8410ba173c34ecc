use super::*;

fn routed(pattern: &str, replacement: &str, text: &str) -> Option<String> {
    let pattern = Pattern::parse(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    let replacement = pattern.replacement(replacement).unwrap();
    pattern.rewrite(text, &replacement).unwrap()
}

#[test]
fn topics_are_rewritten_as_the_event_router_does() {
    let default = ("(?<routedByValue>.*)", "outbox.event.${routedByValue}");
    assert_eq!(routed(default.0, default.1, "Order").as_deref(), Some("outbox.event.Order"));
    assert_eq!(routed(default.0, default.1, "with.dots_and-dash").as_deref(), Some("outbox.event.with.dots_and-dash"));
    assert_eq!(routed(default.0, default.1, "").as_deref(), Some("outbox.event."));
    assert_eq!(routed("svc-(.*)", "ev.$1", "svc-a-b").as_deref(), Some("ev.a-b"));
    assert_eq!(routed("svc-(.*)", "ev.$1", "nomatch"), None);
    assert_eq!(routed("(?<routedByValue>.*)", "all-events", "order").as_deref(), Some("all-events"));
    // A line break is no match for the dot.
    assert_eq!(routed(default.0, default.1, "a\nb"), None);
    assert_eq!(routed(default.0, default.1, "a\u{2028}b"), None);
}

#[test]
fn the_first_find_is_replaced_where_all_of_it_matches() {
    assert_eq!(routed("a|ab", "x", "ab").as_deref(), Some("xb"));
    assert_eq!(routed("a??b*", "x", "abb").as_deref(), Some("xabb"));
    assert_eq!(routed("(a)?(b)?", "[$1|$2]", "b").as_deref(), Some("[|b]"));
}

#[test]
fn replacements_read_as_in_java() {
    let pattern = Pattern::parse("(a)(b)(?<third>c)").unwrap();
    let rewritten = |text: &str| pattern.rewrite("abc", &pattern.replacement(text).unwrap()).unwrap().unwrap();
    assert_eq!(rewritten("$3$2$1$0"), "cbaabc");
    assert_eq!(rewritten("${third}-$12"), "c-a2");
    assert_eq!(rewritten(r"\$1\\\x"), r"$1\x");
    let refused = |text: &str| pattern.replacement(text).unwrap_err();
    assert_eq!(refused("$4"), ReplacementError::NoGroup(4));
    assert_eq!(refused("${fourth}"), ReplacementError::NoName("fourth".into()));
    assert_eq!(refused("${third"), ReplacementError::Unclosed);
    assert_eq!(refused("a$"), ReplacementError::Dollar);
    assert_eq!(refused("$x"), ReplacementError::Dollar);
    assert_eq!(refused(r"a\"), ReplacementError::Escape);
}

#[test]
fn patterns_mean_what_they_mean_in_java() {
    let matches = |pattern: &str, text: &str| {
        Pattern::parse(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}")).matches(text).unwrap()
    };
    for (pattern, yes, no) in [
        (r"\d+", "123", "١٢٣"),
        (r"(?U)\d+", "١٢٣", "x"),
        (r"\w+", "a_1", "ä"),
        (r"\p{Alpha}+", "az", "ä"),
        (r"\p{L}+", "aä", "1"),
        (r"\pL\p{IsAlphabetic}\P{Lu}", "aäb", "aäB"),
        (r"\p{IsGreek}+", "αβ", "ab"),
        (r"(?i)straße", "STRAßE", "STRASSE"),
        (r"(?i)ä", "ä", "Ä"),
        (r"(?iu)ä", "Ä", "a"),
        (r"(?i)[a-c]x", "BX", "DX"),
        (r"a(?i:b)c", "aBc", "aBC"),
        (r"a(?i)b(?-i)c", "aBc", "aBC"),
        (r"\Qa.b*\E+", "a.b***", "aXb"),
        (r"\Qa.b", "a.b", "aXb"),
        (r"[a-z&&[^aeiou]]+", "xyz", "xaz"),
        (r"[a-d[m-p]]+", "adm", "e"),
        (r"[]a]+", "]a", "b"),
        (r"[^]a]+", "b", "]"),
        (r"[a-]+", "a-", "b"),
        (r"[\w-]+", "a-b", "a.b"),
        (r"[a\-z]+", "a-z", "b"),
        (r"[&~]+", "&~", "b"),
        (r"a++b", "aab", "aa"),
        (r"(?>a|ab)c", "ac", "abc"),
        (r"(a)\1", "aa", "ab"),
        (r"(?<x>a|b)\k<x>", "bb", "ba"),
        (r"(?!dbz)\w+", "order", "dbzorder"),
        (r"(?<=^|x)y", "y", "xy"),
        (r"\x41B\x{43}\0104\t", "ABCD\t", "abcd\t"),
        ("\\uD83D\\uDE00", "😀", "x"),
        (r"a{2}b{1,}c{0,2}", "aabcc", "aabccc"),
        (r"(?x) a b # comment", "ab", "a b"),
        (r"(?s).", "\n", ""),
        (r"(?d).", "\r", "\n"),
        (r"a$", "a", "a\n"),
        (r"\R", "\r\n", "ab"),
        (r"(?m)^|a", "a", ""),
        (r"x*", "", "y"),
        (r"(?:a|)b|", "", "a"),
        (r"}]", "}]", ""),
        (r"\.\-\ ", ".- ", "..."),
    ] {
        assert!(matches(pattern, yes), "{pattern} and {yes:?}");
        assert!(!matches(pattern, no), "{pattern} and {no:?}");
    }
    assert_eq!(routed(r"a$\n", "x", "a\n").as_deref(), Some("x"));
    assert_eq!(routed(r"(?m)a$\r\n^b", "x", "a\r\nb").as_deref(), Some("x"));
    assert!(Pattern::parse_ignoring_case(r"public\.out[bc]ox").unwrap().matches("PUBLIC.OutBox").unwrap());
}

#[test]
fn what_is_no_pattern_says_where() {
    let problem = |pattern: &str| Pattern::parse(pattern).unwrap_err().to_string();
    assert_eq!(problem("("), "unclosed group near index 0");
    assert_eq!(problem("a)"), "unmatched closing ) near index 1");
    assert_eq!(problem("a**"), "dangling meta character '*' near index 2");
    assert_eq!(problem("[a-"), "unclosed character class near index 0");
    for pattern in [
        "*a",
        "a{",
        "a{,3}",
        "{1}",
        "a{3,2}",
        "[z-a]",
        "(?<1a>x)",
        "(?<a>x)(?<a>y)",
        r"\",
        r"\y",
        r"\k<nope>",
        r"(a)\2",
        r"\G",
        r"(?i)(a)\1",
        r"(?i)\p{Lu}",
        r"\p{InGreek}",
        r"\p{Nonsense}",
        r"\uD83D",
        "[a&&]",
        "(?z)",
        "^*",
        "(?=a)+",
        r"\R+",
    ] {
        assert!(Pattern::parse(pattern).is_err(), "{pattern}");
    }
}
