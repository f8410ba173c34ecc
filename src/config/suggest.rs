//! The known name that a mistyped one is nearest to.

/// The nearest of `known`, if it is near enough to be what was meant: one edit in three characters, or the last part
/// of a dotted name alone (`topic` for `route.topic`).
pub(super) fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|name| (distance(&typed, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= (typed.chars().count() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

fn distance(typed: &str, name: &str) -> usize {
    let whole = strsim::osa_distance(typed, name);
    match name.rsplit_once('.') {
        Some((_, last)) => whole.min(strsim::osa_distance(typed, last)),
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["slot", "brokers", "confirm_interval", "route.topic"];
        for (typed, name) in [
            ("borkers", "brokers"),
            ("broker", "brokers"),
            ("confirm-interval", "confirm_interval"),
            ("Slots", "slot"),
            ("topic", "route.topic"),
            ("route.topics", "route.topic"),
        ] {
            assert_eq!(nearest(typed, known), Some(name), "{typed}");
        }
        for typed in ["", "x", "port", "password", "kafka"] {
            assert_eq!(nearest(typed, known), None, "{typed}");
        }
    }
}
