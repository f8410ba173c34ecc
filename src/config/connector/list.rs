//! Values that are several, joined by commas.

/// Names without the blanks around them; empty ones are left out.
pub(super) fn names(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// Regular expressions. A comma behind `\` belongs to one.
pub(super) fn patterns(value: &str) -> Vec<String> {
    let mut patterns = Vec::new();
    let mut pattern = String::new();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(',') => pattern.push(','),
                Some(escaped) => pattern.extend(['\\', escaped]),
                None => pattern.push('\\'),
            },
            ',' => patterns.push(std::mem::take(&mut pattern)),
            c => pattern.push(c),
        }
    }
    patterns.push(pattern);
    patterns.iter().map(|pattern| pattern.trim().to_owned()).filter(|pattern| !pattern.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_part_patterns_unless_escaped() {
        assert_eq!(patterns(r"public.outbox, app\.x{1\,2},,"), ["public.outbox", r"app\.x{1,2}"]);
        assert_eq!(names(" decode, outbox,").collect::<Vec<_>>(), ["decode", "outbox"]);
    }
}
