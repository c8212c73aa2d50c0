//! Serves functions as tools of Runwire, over NATS, and follows runs.

mod connection;
mod runs;
mod serve;

pub use connection::{connect, Connection};
pub use runs::{follow, Record};
pub use serve::{main, Context, Refusal, Spec};

pub type Error = Box<dyn std::error::Error + Send + Sync>;
