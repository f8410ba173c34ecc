//! How much is logged, and how that is changed while the process runs.
//!
//! There is one filter. `root` is what `--log-level` says; other names are targets, as in `librdkafka` or `walpost::prune`,
//! with a level of their own on top of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    EnvFilter, Registry,
    filter::ParseError,
    reload::{Handle, Layer},
};

/// The logger that all others take their level from.
pub const ROOT: &str = "root";
/// Targets with a level of their own.
const NAMED_MAX: usize = 64;
/// Of a level or filter, and of a target.
const TEXT_BYTES_MAX: usize = 1024;

/// What is no level, or of no logger.
#[derive(Debug, thiserror::Error)]
pub enum LevelError {
    #[error("{level:?} is no log level; use error, warn, info, debug, trace, or a filter as in walpost=debug")]
    Level { level: String, source: Option<ParseError> },
    #[error("{0:?} is no logger: name root, or a target as in librdkafka or walpost::prune")]
    Name(String),
    #[error(
        "{NAMED_MAX} loggers have a level of their own, which is the most: set the level of root, which ends those"
    )]
    TooMany,
    #[error("the logs of this process have ended")]
    Ended,
}

/// The levels of a process.
#[derive(Clone, Debug)]
pub struct Loggers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    filter: Handle<EnvFilter, Registry>,
    at_start: String,
    levels: Mutex<Levels>,
}

#[derive(Clone, Debug)]
struct Levels {
    root: Level,
    named: BTreeMap<String, Level>,
}

/// A level, and when it was last changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// As it was given: a level, or for `root` a filter too.
    pub text: String,
    pub modified: Option<SystemTime>,
}

impl Loggers {
    /// With the level that the process starts with, and the filter that is to go over its registry.
    pub fn start(level: &str) -> Result<(Loggers, Layer<EnvFilter, Registry>), LevelError> {
        let levels = Levels::of(level.to_owned(), None);
        let (layer, handle) = Layer::new(levels.filter()?);
        let inner = Inner { filter: handle, at_start: level.to_owned(), levels: Mutex::new(levels) };
        Ok((Loggers(Arc::new(inner)), layer))
    }

    /// All that have a level of their own, `root` among them.
    pub fn all(&self) -> BTreeMap<String, Level> {
        let levels = self.0.lock();
        let mut all = levels.named.clone();
        all.insert(ROOT.to_owned(), levels.root.clone());
        all
    }

    /// Sets a level. That of `root` ends those of all others.
    pub fn set(&self, name: &str, level: &str, now: SystemTime) -> Result<(), LevelError> {
        let refused = || LevelError::Level { level: shown(level), source: None };
        if level.is_empty() || level.len() > TEXT_BYTES_MAX || is_misspelt(level) {
            return Err(refused());
        }
        let mut levels = self.0.lock();
        let changed = if name == ROOT {
            Levels::of(level.to_owned(), Some(now))
        } else {
            if !is_target(name) {
                return Err(LevelError::Name(shown(name)));
            }
            let level: LevelFilter = level.parse().map_err(|_| refused())?;
            let mut changed = levels.clone();
            changed.named.insert(name.to_owned(), Level { text: level.to_string(), modified: Some(now) });
            if changed.named.len() > NAMED_MAX {
                return Err(LevelError::TooMany);
            }
            changed
        };
        self.0.put(&mut levels, changed)
    }

    /// Back to what the process started with.
    pub fn reset(&self, now: SystemTime) -> Result<String, LevelError> {
        let levels = Levels::of(self.0.at_start.clone(), Some(now));
        self.0.put(&mut self.0.lock(), levels)?;
        Ok(self.0.at_start.clone())
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Levels> {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, levels: &mut Levels, changed: Levels) -> Result<(), LevelError> {
        let filter = changed.filter()?;
        self.filter.reload(filter).map_err(|_| LevelError::Ended)?;
        *levels = changed;
        Ok(())
    }
}

impl Levels {
    fn of(root: String, modified: Option<SystemTime>) -> Levels {
        Levels { root: Level { text: root, modified }, named: BTreeMap::new() }
    }

    fn filter(&self) -> Result<EnvFilter, LevelError> {
        let typed = &self.root.text;
        // At a plain level the libraries stay quiet: what they have to say comes back as errors that walpost reports.
        let mut directives = match typed.parse::<LevelFilter>() {
            Ok(level) => format!("warn,librdkafka=error,rdkafka=error,walpost={level}"),
            Err(_) => typed.to_owned(),
        };
        for (name, level) in &self.named {
            directives.push_str(&format!(",{name}={}", level.text));
        }
        // A pattern of a few characters may take for ever to compile.
        EnvFilter::builder()
            .with_regex(false)
            .parse(directives)
            .map_err(|source| LevelError::Level { level: shown(typed), source: Some(source) })
    }
}

/// A filter would take any word for a target, and a misspelt level then silences all logs.
pub fn is_misspelt(typed: &str) -> bool {
    typed.parse::<LevelFilter>().is_err() && typed.chars().all(|c| c.is_ascii_alphanumeric())
}

/// As modules of Rust are named; what else a filter may hold is none.
fn is_target(name: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.' | '-');
    !name.is_empty() && name.len() <= TEXT_BYTES_MAX && name.chars().all(is_of_name)
}

/// Enough of what was given to know it again.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(typed: &str) -> Result<String, LevelError> {
        Levels::of(typed.to_owned(), None).filter().map(|filter| filter.to_string())
    }

    #[test]
    fn a_plain_level_is_walposts_alone() {
        let debug = filter("debug").unwrap();
        assert!(debug.contains("walpost=debug") && debug.contains("librdkafka=error"), "{debug}");
        assert_eq!(filter("librdkafka=debug").unwrap(), "librdkafka=debug");
    }

    #[test]
    fn what_is_no_level_is_refused() {
        for level in ["walpost=loud", "walpost==", "a=b=c"] {
            assert!(filter(level).is_err(), "{level}");
        }
        for (level, misspelt) in [("inof", true), ("INFO", false), ("off", false), ("walpost=debug", false)] {
            assert_eq!(is_misspelt(level), misspelt, "{level}");
        }
    }

    #[test]
    fn levels_change_and_a_refused_change_changes_nothing() {
        let (loggers, _layer) = Loggers::start("info").unwrap();
        let now = SystemTime::UNIX_EPOCH;
        let text = |name: &str| loggers.all().get(name).map(|level| level.text.clone());
        loggers.set("librdkafka", "DEBUG", now).unwrap();
        loggers.set("walpost::prune", "trace", now).unwrap();
        assert_eq!((text(ROOT).unwrap(), text("librdkafka").unwrap()), ("info".into(), "debug".into()));
        let filter = loggers.0.lock().filter().unwrap().to_string();
        assert!(filter.contains("librdkafka=debug") && filter.contains("walpost::prune=trace"), "{filter}");
        assert!(!filter.contains("librdkafka=error"), "{filter}");
        let before = loggers.all();
        for (name, level) in [
            (ROOT, "loud"),
            (ROOT, "walpost=loud"),
            ("walpost", "a=debug"),
            ("a,b", "info"),
            ("", "info"),
            ("[x]", "info"),
        ] {
            loggers.set(name, level, now).expect_err(name);
        }
        loggers.set(ROOT, &"a=debug,".repeat(200), now).expect_err("it is too long");
        assert_eq!(loggers.all(), before);
        loggers.set(ROOT, "walpost=warn,librdkafka=info", now).unwrap();
        assert_eq!(text("librdkafka"), None);
        assert_eq!(loggers.reset(now).unwrap(), "info");
        assert_eq!(text(ROOT).as_deref(), Some("info"));
    }

    #[test]
    fn a_filter_by_fields_compiles_no_pattern() {
        let unbounded = format!("[span{{field=<{}}}]=info", r"\w".repeat(400));
        let begun = std::time::Instant::now();
        let _ = filter(&unbounded);
        assert!(begun.elapsed() < std::time::Duration::from_secs(5));
    }

    #[test]
    fn there_is_a_most_of_loggers() {
        let (loggers, _layer) = Loggers::start("info").unwrap();
        let set = |n: usize| loggers.set(&format!("a{n}"), "info", SystemTime::UNIX_EPOCH);
        (0..NAMED_MAX).for_each(|n| set(n).unwrap());
        assert!(matches!(set(NAMED_MAX), Err(LevelError::TooMany)));
        assert_eq!(loggers.all().len(), NAMED_MAX + 1);
    }
}
