//! Follows a run live over NATS, until it ends, with the rights of a listener: the live subjects, and the last record of the log.
//!
//! The two subjects of a run, log (facts) and stream (tokens, progress), have a cursor each. A gap shows in Nats-Last-Sequence; a lost last
//! record shows when the log is checked, after a quiet while. What was missed is named: the gateway's event stream has it.

use std::{collections::HashMap, time::Duration};

use async_nats::header::{HeaderName, NATS_LAST_SEQUENCE, NATS_SEQUENCE, NATS_SUBJECT};
use async_nats::{Client, Message};
use futures_util::StreamExt;
use serde_json::Value;

use crate::Error;

const QUIET: Duration = Duration::from_secs(3);

/// One stored message of a run: the events of one transition.
pub struct Record {
    /// log or stream
    pub kind: String,
    pub sequence: u64,
    pub events: Vec<Value>,
    /// Records of this kind before it were not seen.
    pub missed: bool,
}

/// Shows each record of a run in order, once, until the run has ended.
pub async fn follow(client: &Client, tenant: &str, run: &str, mut show: impl FnMut(&Record)) -> Result<(), Error> {
    let mut live = client.subscribe(format!("run.{tenant}.{run}.*")).await?;
    let log = format!("$JS.API.DIRECT.GET.RUNS.emit.{tenant}.{run}.log");
    let mut at: HashMap<String, u64> = HashMap::new();
    let mut last = last_of(client, &log).await;
    loop {
        if let Some((record, previous)) = last.as_ref().and_then(stored) {
            let cursor = at.entry(record.kind.clone()).or_default();
            if record.sequence > *cursor {
                let record = Record { missed: previous.unwrap_or(record.sequence) > *cursor, ..record };
                *cursor = record.sequence;
                show(&record);
                if record
                    .events
                    .iter()
                    .any(|event| ["done", "error", "cancelled"].map(Value::from).contains(&event["type"]))
                {
                    return Ok(());
                }
            }
        }
        last = match tokio::time::timeout(QUIET, live.next()).await {
            Ok(Some(message)) => Some(message),
            Ok(None) => return Err("the connection is closed".into()),
            Err(_) => last_of(client, &log).await,
        };
    }
}

async fn last_of(client: &Client, log: &str) -> Option<Message> {
    let answer = client.request(log.to_owned(), "".into()).await;
    answer.inspect_err(|error| eprintln!("the log cannot be checked: {error}")).ok()
}

/// None: the message is no stored record, as when somebody writes to the live subject directly. What was stored once, read, and published
/// again has the header Nats-Subject twice. Only a live one knows the sequence of the record before it.
fn stored(message: &Message) -> Option<(Record, Option<u64>)> {
    let headers = message.headers.as_ref()?;
    let mut subjects = headers.get_all(NATS_SUBJECT);
    let (subject, None) = (subjects.next()?, subjects.next()) else { return None };
    let number = |name: HeaderName| headers.get(name).and_then(|text| text.as_str().parse::<u64>().ok());
    let mut body: Value = serde_json::from_slice(&message.payload).ok()?;
    let Value::Array(events) = body["events"].take() else { return None };
    let kind = subject.as_str().rsplit('.').next()?.to_owned();
    Some((Record { kind, sequence: number(NATS_SEQUENCE)?, events, missed: false }, number(NATS_LAST_SEQUENCE)))
}
