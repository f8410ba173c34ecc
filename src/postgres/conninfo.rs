//! Connection strings, as libpq takes them.

/// Where PostgreSQL is and how to get in. The password does not print.
#[derive(Clone, Debug)]
pub struct ConnInfo {}
