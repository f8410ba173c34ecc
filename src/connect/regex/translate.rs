//! From a Java pattern to one for fancy-regex.

use super::PatternError;

/// A pattern for fancy-regex, its groups numbered as Java numbers them.
pub(super) struct Translated {
    pub(super) pattern: String,
    pub(super) groups: usize,
    pub(super) names: Vec<(String, usize)>,
}

pub(super) fn translate(text: &str, ignore_case: bool) -> Result<Translated, PatternError> {
    let chars: Vec<char> = text.chars().collect();
    let mut translator = Translator {
        chars: &chars,
        at: 0,
        out: String::new(),
        flags: Flags { ignore_case, ..Flags::default() },
        groups: 0,
        names: Vec::new(),
        references: Vec::new(),
    };
    translator.alternatives()?;
    if translator.at < chars.len() {
        return Err(translator.refuse("unmatched closing )"));
    }
    // A group may be referred to before it is closed, but there must be one.
    if let Some((_, at)) = translator.references.iter().find(|(group, _)| *group > translator.groups) {
        return Err(PatternError { problem: "there is no such group to refer to".into(), at: *at });
    }
    Ok(Translated { pattern: translator.out, groups: translator.groups, names: translator.names })
}

/// `(?idmsuxU)`.
#[derive(Clone, Copy, Default)]
struct Flags {
    ignore_case: bool,
    unicode_case: bool,
    unicode_classes: bool,
    dot_all: bool,
    multiline: bool,
    unix_lines: bool,
    comments: bool,
}

struct Translator<'a> {
    chars: &'a [char],
    at: usize,
    out: String,
    flags: Flags,
    groups: usize,
    names: Vec<(String, usize)>,
    references: Vec<(usize, usize)>,
}

type Done = Result<(), PatternError>;

const LINE_END: &str = r"\n\r\x{85}\x{2028}\x{2029}";

/// What a quantifier behind an atom is about.
enum Atom {
    Repeatable,
    /// It takes no characters, or a number of them that Java decides otherwise when it is repeated.
    Fixed,
    /// Nothing: it is done with.
    Done,
}

/// A character of a class, or a set of them in the engine's syntax.
enum Member {
    One(char),
    Set(String),
}

impl Translator<'_> {
    /// Alternatives up to the end, or up to the `)` that closes the group.
    fn alternatives(&mut self) -> Done {
        loop {
            match self.peek() {
                None | Some(')') => return Ok(()),
                Some('|') => {
                    self.at += 1;
                    self.out.push('|');
                }
                Some(_) => self.piece()?,
            }
        }
    }

    /// An atom and its quantifier.
    fn piece(&mut self) -> Done {
        if self.flags.comments && self.skip_comments() {
            return Ok(());
        }
        let start = self.out.len();
        match self.atom()? {
            Atom::Repeatable => self.quantifier(start),
            Atom::Fixed => self.no_quantifier(),
            Atom::Done => Ok(()),
        }
    }

    fn atom(&mut self) -> Result<Atom, PatternError> {
        let c = self.chars[self.at];
        match c {
            '(' => return self.group(),
            '[' => {
                self.at += 1;
                let class = self.class()?;
                self.out.push_str(&class);
            }
            '\\' => return self.escape(),
            '*' | '+' | '?' => return Err(self.refuse(&format!("dangling meta character '{c}'"))),
            '{' => return Err(self.refuse("illegal repetition")),
            '.' => {
                self.at += 1;
                let dot = match (self.flags.dot_all, self.flags.unix_lines) {
                    (true, _) => "(?s:.)".to_owned(),
                    (false, true) => r"[^\n]".to_owned(),
                    (false, false) => format!("[^{LINE_END}]"),
                };
                self.out.push_str(&dot);
            }
            '^' => {
                self.at += 1;
                let start = match (self.flags.multiline, self.flags.unix_lines) {
                    (false, _) => r"\A".to_owned(),
                    (true, true) => r"(?:\A|(?<=\n))(?!\z)".to_owned(),
                    (true, false) => r"(?:\A|(?<=[\n\x{85}\x{2028}\x{2029}])|(?<=\r)(?!\n))(?!\z)".to_owned(),
                };
                self.out.push_str(&start);
                return Ok(Atom::Fixed);
            }
            '$' => {
                self.at += 1;
                let end = if self.flags.multiline { self.line_end() } else { self.final_line_end() };
                self.out.push_str(end);
                return Ok(Atom::Fixed);
            }
            c => {
                self.at += 1;
                self.literal(c);
            }
        }
        Ok(Atom::Repeatable)
    }

    fn line_end(&self) -> &'static str {
        if self.flags.unix_lines { r"(?:\z|(?=\n))" } else { r"(?:\z|(?=[\r\x{85}\x{2028}\x{2029}])|(?<!\r)(?=\n))" }
    }

    fn final_line_end(&self) -> &'static str {
        if self.flags.unix_lines {
            r"(?=\n?\z)"
        } else {
            r"(?:(?=\r\n\z)|(?=[\r\x{85}\x{2028}\x{2029}]?\z)|(?<!\r)(?=\n\z))"
        }
    }

    fn literal(&mut self, c: char) {
        let text = self.folded(c);
        self.out.push_str(&text);
    }

    /// A literal with what is the same to it.
    fn folded(&self, c: char) -> String {
        match (self.flags.ignore_case, self.flags.unicode_case) {
            (true, true) => format!("(?i:{})", escaped(c)),
            (true, false) if c.is_ascii_alphabetic() => {
                format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase())
            }
            (_, _) => escaped(c),
        }
    }

    /// `(…)` in all its kinds.
    fn group(&mut self) -> Result<Atom, PatternError> {
        let opened_at = self.at;
        self.at += 1;
        let flags_outside = self.flags;
        let opening = if self.eat("?") {
            if self.eat(":") {
                "(?:"
            } else if self.eat("=") {
                "(?="
            } else if self.eat("!") {
                "(?!"
            } else if self.eat(">") {
                "(?>"
            } else if self.eat("<=") {
                "(?<="
            } else if self.eat("<!") {
                "(?<!"
            } else if self.eat("<") {
                let name = self.name()?;
                if self.names.iter().any(|(known, _)| *known == name) {
                    return Err(self.refuse(&format!("a group named {name:?} is defined already")));
                }
                self.groups += 1;
                self.names.push((name, self.groups));
                "("
            } else if self.inline_flags()? {
                // They hold up to the end of the group that they are in.
                return Ok(Atom::Done);
            } else {
                "(?:"
            }
        } else {
            self.groups += 1;
            "("
        };
        self.out.push_str(opening);
        self.alternatives()?;
        if !self.eat(")") {
            self.at = opened_at;
            return Err(self.refuse("unclosed group"));
        }
        self.out.push(')');
        self.flags = flags_outside;
        let looks = ["(?=", "(?!", "(?<=", "(?<!"].contains(&opening);
        Ok(if looks { Atom::Fixed } else { Atom::Repeatable })
    }

    /// `imx-s` behind `(?`; true when `)` follows, false when `:` does.
    fn inline_flags(&mut self) -> Result<bool, PatternError> {
        let mut on = true;
        loop {
            let flag = self.peek().ok_or_else(|| self.refuse("unknown inline modifier"))?;
            match flag {
                'i' => self.flags.ignore_case = on,
                'u' => self.flags.unicode_case = on,
                's' => self.flags.dot_all = on,
                'm' => self.flags.multiline = on,
                'd' => self.flags.unix_lines = on,
                'x' => self.flags.comments = on,
                'U' => {
                    self.flags.unicode_classes = on;
                    self.flags.unicode_case = on;
                }
                '-' => on = false,
                ')' | ':' => {
                    self.at += 1;
                    return Ok(flag == ')');
                }
                _ => return Err(self.refuse("unknown inline modifier")),
            }
            self.at += 1;
        }
    }

    /// The name of a group, with the `>` behind it.
    fn name(&mut self) -> Result<String, PatternError> {
        let mut name = String::new();
        while let Some(c) = self.peek().filter(char::is_ascii_alphanumeric) {
            name.push(c);
            self.at += 1;
        }
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(self.refuse("the name of a group begins with a letter"));
        }
        if !self.eat(">") {
            return Err(self.refuse("the name of a group is letters and digits, closed with '>'"));
        }
        Ok(name)
    }

    /// `*`, `+`, `?`, `{2,3}`, each greedy, reluctant (`?`) or possessive (`+`).
    fn quantifier(&mut self, start: usize) -> Done {
        if self.flags.comments {
            while self.skip_comments() {}
        }
        let quantifier = match self.peek() {
            Some(c @ ('*' | '+' | '?')) => {
                self.at += 1;
                c.to_string()
            }
            Some('{') => self.repetition()?,
            Some(_) | None => return Ok(()),
        };
        // Around the atom, so that the quantifier is about all of it.
        self.out.insert_str(start, "(?:");
        self.out.push(')');
        self.out.push_str(&quantifier);
        if self.eat("?") {
            self.out.push('?');
        } else if self.eat("+") {
            self.out.insert_str(start, "(?>");
            self.out.push(')');
        }
        Ok(())
    }

    fn no_quantifier(&mut self) -> Done {
        match self.peek() {
            Some('*' | '+' | '?' | '{') => Err(self.refuse("a quantifier behind this is not available")),
            Some(_) | None => Ok(()),
        }
    }

    fn repetition(&mut self) -> Result<String, PatternError> {
        self.at += 1;
        let least = self.number()?;
        let text = if self.eat(",") {
            if self.peek() == Some('}') {
                format!("{{{least},}}")
            } else {
                let most = self.number()?;
                if most < least {
                    return Err(self.refuse("illegal repetition range"));
                }
                format!("{{{least},{most}}}")
            }
        } else {
            format!("{{{least}}}")
        };
        if !self.eat("}") {
            return Err(self.refuse("unclosed counted closure"));
        }
        Ok(text)
    }

    fn number(&mut self) -> Result<u32, PatternError> {
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
        let digits: String = self.chars[start..self.at].iter().collect();
        digits.parse().map_err(|_| self.refuse("illegal repetition"))
    }

    /// A `\` outside a class.
    fn escape(&mut self) -> Result<Atom, PatternError> {
        self.at += 1;
        let Some(c) = self.peek() else { return Err(self.refuse("a \\ at the end escapes nothing")) };
        let assertion = match c {
            'A' => Some(r"\A"),
            'z' => Some(r"\z"),
            'Z' => Some(self.final_line_end()),
            'b' if self.chars.get(self.at + 1) == Some(&'{') => return Err(self.refuse(r"\b{…} is not available")),
            'b' => Some(r"\b"),
            'B' => Some(r"\B"),
            // Java steps back into one that is not repeated.
            'R' => Some(r"(?:\r\n|[\n\x{b}\x{c}\r\x{85}\x{2028}\x{2029}])"),
            'G' | 'X' | 'N' => return Err(self.refuse(&format!(r"\{c} is not available"))),
            _ => None,
        };
        if let Some(assertion) = assertion {
            self.at += 1;
            self.out.push_str(assertion);
            return Ok(Atom::Fixed);
        }
        match c {
            'Q' => {
                self.at += 1;
                return self.quoted();
            }
            '1'..='9' => self.back_reference()?,
            'k' => {
                self.at += 1;
                if !self.eat("<") {
                    return Err(self.refuse(r"\k is not followed by '<' and the name of a group"));
                }
                let name = self.name()?;
                let known = self.names.iter().find(|(known, _)| *known == name).map(|(_, group)| *group);
                let group =
                    known.ok_or_else(|| self.refuse(&format!("there is no group named {name:?} before this")))?;
                self.refer(group)?;
            }
            _ => match self.escaped_member()? {
                Member::One(c) => self.literal(c),
                Member::Set(set) => self.out.push_str(&set),
            },
        }
        Ok(Atom::Repeatable)
    }

    /// What stands between `\Q` and `\E`: each character as it is. A quantifier behind it is about the last one.
    fn quoted(&mut self) -> Result<Atom, PatternError> {
        while self.at < self.chars.len() && !self.eat(r"\E") {
            let start = self.out.len();
            let c = self.chars[self.at];
            self.at += 1;
            self.literal(c);
            if self.chars[self.at..].starts_with(&['\\', 'E']) {
                self.at += 2;
                self.quantifier(start)?;
                break;
            }
        }
        Ok(Atom::Done)
    }

    /// `\12`: as many digits as make the number of a group that is open or closed by now.
    fn back_reference(&mut self) -> Done {
        let digit = |c: char| c.to_digit(10).map(|digit| digit as usize);
        let mut group = 0;
        while let Some(digit) = self.peek().and_then(digit) {
            let longer = group * 10 + digit;
            if group > 0 && longer > self.groups {
                break;
            }
            group = longer;
            self.at += 1;
        }
        self.refer(group)
    }

    fn refer(&mut self, group: usize) -> Done {
        if self.flags.ignore_case {
            return Err(self.refuse("a backreference under (?i) is not available"));
        }
        self.references.push((group, self.at));
        self.out.push_str(&format!(r"(?:\{group})"));
        Ok(())
    }

    /// A `\` that has been read, before what means the same inside and outside of a class.
    fn escaped_member(&mut self) -> Result<Member, PatternError> {
        let Some(c) = self.peek() else { return Err(self.refuse("a \\ at the end escapes nothing")) };
        self.at += 1;
        let unicode = self.flags.unicode_classes;
        let set = |set: &str| Ok(Member::Set(set.to_owned()));
        match c {
            'd' if unicode => set(r"\d"),
            'D' if unicode => set(r"\D"),
            'w' if unicode => set(r"\w"),
            'W' if unicode => set(r"\W"),
            's' if unicode => set(r"\s"),
            'S' if unicode => set(r"\S"),
            'd' => set("[0-9]"),
            'D' => set("[^0-9]"),
            'w' => set("[a-zA-Z0-9_]"),
            'W' => set("[^a-zA-Z0-9_]"),
            's' => set(r"[ \t\n\x{b}\x{c}\r]"),
            'S' => set(r"[^ \t\n\x{b}\x{c}\r]"),
            'h' => set(r"[ \t\x{a0}\x{1680}\x{180e}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}]"),
            'H' => set(r"[^ \t\x{a0}\x{1680}\x{180e}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}]"),
            'v' => set(r"[\n\x{b}\x{c}\r\x{85}\x{2028}\x{2029}]"),
            'V' => set(r"[^\n\x{b}\x{c}\r\x{85}\x{2028}\x{2029}]"),
            'p' | 'P' => self.property(c == 'P').map(Member::Set),
            't' => Ok(Member::One('\t')),
            'n' => Ok(Member::One('\n')),
            'r' => Ok(Member::One('\r')),
            'f' => Ok(Member::One('\u{c}')),
            'a' => Ok(Member::One('\u{7}')),
            'e' => Ok(Member::One('\u{1b}')),
            'c' => {
                let control =
                    self.peek().filter(char::is_ascii).ok_or_else(|| self.refuse("illegal control escape"))?;
                self.at += 1;
                Ok(Member::One(char::from(control as u8 ^ 64)))
            }
            '0' => self.octal().map(Member::One),
            'x' => self.hexadecimal().map(Member::One),
            'u' => self.utf16().map(Member::One),
            c if c.is_ascii_alphabetic() => Err(self.refuse(&format!(r"\{c} is no escape sequence"))),
            c => Ok(Member::One(c)),
        }
    }

    /// One to three digits, up to 0377.
    fn octal(&mut self) -> Result<char, PatternError> {
        let mut code = 0;
        let mut digits = 0;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) {
            if digits == 3 || code * 8 + digit > 0o377 {
                break;
            }
            code = code * 8 + digit;
            digits += 1;
            self.at += 1;
        }
        char::from_u32(code).filter(|_| digits > 0).ok_or_else(|| self.refuse("illegal octal escape"))
    }

    fn hexadecimal(&mut self) -> Result<char, PatternError> {
        if self.eat("{") {
            let mut code = 0_u32;
            while let Some(digit) = self.peek().and_then(|c| c.to_digit(16)) {
                code = code.checked_mul(16).map_or(u32::MAX, |code| code.saturating_add(digit));
                self.at += 1;
            }
            let closed = self.eat("}");
            return char::from_u32(code).filter(|_| closed).ok_or_else(|| self.refuse("illegal hexadecimal escape"));
        }
        let code = self.hex_digits(2)?;
        char::from_u32(code).ok_or_else(|| self.refuse("illegal hexadecimal escape"))
    }

    /// `hhhh`, or two of them that make one character.
    fn utf16(&mut self) -> Result<char, PatternError> {
        let mut units = vec![self.hex_digits(4)? as u16];
        if (0xd800..0xdc00).contains(&units[0]) && self.eat(r"\u") {
            units.push(self.hex_digits(4)? as u16);
        }
        match char::decode_utf16(units).collect::<Vec<_>>()[..] {
            [Ok(c)] => Ok(c),
            _ => Err(self.refuse("half a surrogate pair is no character")),
        }
    }

    fn hex_digits(&mut self, count: usize) -> Result<u32, PatternError> {
        let mut code = 0;
        for _ in 0..count {
            let digit = self.peek().and_then(|c| c.to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.refuse("illegal hexadecimal or Unicode escape"))?;
            self.at += 1;
        }
        Ok(code)
    }

    /// `\p{…}` or `\pL`, the `p` read.
    fn property(&mut self, negated: bool) -> Result<String, PatternError> {
        let mut name = String::new();
        if self.eat("{") {
            while let Some(c) = self.peek().filter(|c| *c != '}') {
                name.push(c);
                self.at += 1;
            }
            if !self.eat("}") {
                return Err(self.refuse("unclosed character family"));
            }
        } else {
            name.extend(self.peek());
            self.at += 1;
        }
        let unknown = || self.refuse(&format!(r"\p{{{name}}} is not available"));
        let cased = ["Lower", "Upper", "Lu", "Ll", "Lt", "IsLu", "IsLl", "IsLt", "javaLowerCase", "javaUpperCase"];
        let cased_names = ["IsLowercase", "IsUppercase", "IsTitlecase", "javaTitleCase"];
        if self.flags.ignore_case && (cased.contains(&&*name) || cased_names.contains(&&*name)) {
            return Err(self.refuse("a property of case under (?i) is not available"));
        }
        let ascii = match name.as_str() {
            _ if self.flags.unicode_classes => None,
            "Lower" => Some("a-z"),
            "Upper" => Some("A-Z"),
            "ASCII" => Some(r"\x{0}-\x{7f}"),
            "Alpha" => Some("a-zA-Z"),
            "Digit" => Some("0-9"),
            "Alnum" => Some("a-zA-Z0-9"),
            "Punct" => Some(r"\x{21}-\x{2f}\x{3a}-\x{40}\x{5b}-\x{60}\x{7b}-\x{7e}"),
            "Graph" => Some(r"\x{21}-\x{7e}"),
            "Print" => Some(r"\x{20}-\x{7e}"),
            "Blank" => Some(r" \t"),
            "Cntrl" => Some(r"\x{0}-\x{1f}\x{7f}"),
            "XDigit" => Some("0-9a-fA-F"),
            "Space" => Some(r" \t\n\x{b}\x{c}\r"),
            _ => None,
        };
        if let Some(members) = ascii {
            return Ok(format!("[{}{members}]", if negated { "^" } else { "" }));
        }
        let known = match name.as_str() {
            "javaLowerCase" | "Lower" => "Lowercase",
            "javaUpperCase" | "Upper" => "Uppercase",
            "javaAlphabetic" | "Alpha" => "Alphabetic",
            "javaDigit" | "Digit" => "Nd",
            "javaLetter" => "L",
            other => {
                let other = other.strip_prefix("Is").unwrap_or(other);
                let value = other.split_once('=').map_or(other, |(_, value)| value);
                let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
                if value.is_empty() || !value.chars().all(plain) || other.starts_with("In") || other.starts_with("java")
                {
                    return Err(unknown());
                }
                other
            }
        };
        let property = format!(r"\{}{{{known}}}", if negated { 'P' } else { 'p' });
        if fancy_regex::Regex::new(&property).is_err() {
            return Err(unknown());
        }
        Ok(property)
    }

    /// A class, its `[` read.
    fn class(&mut self) -> Result<String, PatternError> {
        let opened_at = self.at - 1;
        let negated = self.eat("^");
        let mut sides = vec![String::new()];
        let mut empty = true;
        loop {
            if self.flags.comments && self.skip_comments() {
                continue;
            }
            let Some(c) = self.peek() else {
                self.at = opened_at;
                return Err(self.refuse("unclosed character class"));
            };
            let side = sides.len() - 1;
            match c {
                ']' if !empty => {
                    self.at += 1;
                    break;
                }
                '&' if self.chars[self.at..].starts_with(&['&', '&']) => {
                    self.at += 2;
                    if sides[side].is_empty() {
                        return Err(self.refuse("nothing stands before &&"));
                    }
                    sides.push(String::new());
                }
                '[' => {
                    self.at += 1;
                    let inner = self.class()?;
                    sides[side].push_str(&inner);
                }
                _ => {
                    let members = self.range()?;
                    sides[side].push_str(&members);
                }
            }
            empty = false;
        }
        if sides.last().is_none_or(String::is_empty) {
            return Err(self.refuse("nothing stands behind &&"));
        }
        let sides: Vec<_> = match &sides[..] {
            [only] => vec![only.clone()],
            many => many.iter().map(|side| format!("[{side}]")).collect(),
        };
        let class = format!("[{}{}]", if negated { "^" } else { "" }, sides.join("&&"));
        let fold_all = self.flags.ignore_case && self.flags.unicode_case;
        Ok(if fold_all { format!("(?i:{class})") } else { class })
    }

    /// One member of a class, or a range of them.
    fn range(&mut self) -> Result<String, PatternError> {
        let first = match self.member()? {
            Member::Set(set) => return Ok(set),
            Member::One(c) => c,
        };
        let next = self.chars.get(self.at + 1);
        if self.peek() != Some('-') || matches!(next, None | Some(']' | '[')) {
            return Ok(self.members(first, first));
        }
        self.at += 1;
        match self.member()? {
            Member::One(last) if last >= first => Ok(self.members(first, last)),
            Member::One(_) => Err(self.refuse("illegal character range")),
            // The hyphen was one itself.
            Member::Set(set) => Ok(format!("{}{}{set}", self.members(first, first), escaped('-'))),
        }
    }

    fn member(&mut self) -> Result<Member, PatternError> {
        let Some(c) = self.peek() else { return Err(self.refuse("unclosed character class")) };
        self.at += 1;
        match c {
            '\\' if self.eat("Q") => Err(self.refuse(r"\Q in a character class is not available")),
            '\\' => self.escaped_member(),
            c => Ok(Member::One(c)),
        }
    }

    /// A range with what is the same to its ASCII letters.
    fn members(&self, first: char, last: char) -> String {
        let mut members = range(first, last);
        if self.flags.ignore_case && !self.flags.unicode_case {
            for (from, to) in [('a', 'A'), ('A', 'a')] {
                let end = char::from(from as u8 + 25);
                let (start, end) = (first.max(from), last.min(end));
                if start <= end {
                    let shifted = |c: char| char::from((c as u8 - from as u8) + to as u8);
                    members.push_str(&range(shifted(start), shifted(end)));
                }
            }
        }
        members
    }

    /// White space, or a comment up to the end of the line; whether there was any.
    fn skip_comments(&mut self) -> bool {
        match self.peek() {
            Some(' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r') => self.at += 1,
            Some('#') => {
                let ends = |c: char| matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
                while self.peek().is_some_and(|c| !ends(c)) {
                    self.at += 1;
                }
            }
            Some(_) | None => return false,
        }
        true
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    /// Steps over this text, if it comes next.
    fn eat(&mut self, text: &str) -> bool {
        let next = self.chars[self.at..].iter().copied().take(text.chars().count());
        let found = next.eq(text.chars());
        if found {
            self.at += text.chars().count();
        }
        found
    }

    fn refuse(&self, problem: &str) -> PatternError {
        PatternError { problem: problem.to_owned(), at: self.at }
    }
}

fn range(first: char, last: char) -> String {
    if first == last { escaped(first) } else { format!("{}-{}", escaped(first), escaped(last)) }
}

/// A character that means itself, inside and outside of a class.
fn escaped(c: char) -> String {
    if c.is_ascii_alphanumeric() || !c.is_ascii() { c.to_string() } else { format!(r"\x{{{:x}}}", c as u32) }
}
