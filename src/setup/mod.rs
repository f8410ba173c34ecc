//! What `walpost setup` makes and `walpost teardown` drops.
//!
//! [`Facts`] are read once, [`plan::plan`] decides from them alone, [`apply`] carries the plan out. Nothing that exists is
//! altered, with one exception: an existing publication of ours to alter is told to publish an outbox that it lacks.

mod adopt;
pub mod apply;
pub mod connector;
pub mod facts;
pub mod inbox;
pub mod names;
pub mod plan;
pub mod print;
pub mod record;
pub mod tables;
pub mod teardown;

pub use facts::Facts;
