//! Serves a function as a tool.
//!
//! Rule 1: calls run at the same time, each as a task; one loop owns all that is known of them, and alone publishes.
//! Rule 2: the function runs once per idempotency key and round. A repeated request, or one on `.status`, joins the call in flight: it
//! receives all pieces of artifacts from the start, then the end. A call that has ended is answered again, never executed again.
//! Rule 3: nothing starts after its deadline. Late requests are declined. Who repeats one has read that, so a repetition that still seems
//! late says how far this machine's clock is ahead.
//! Rule 4: a cancelled call ends at its next `await`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::time::{Duration, SystemTime};

use async_nats::service::{endpoint::Endpoint, Service, ServiceExt};
use async_nats::{Client, HeaderMap, Message, Subject};
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::{de::DeserializeOwned, Deserialize, Serialize};
use serde_json::{json, Value};
use tokio::signal::unix::{signal, SignalKind};
use tokio::{sync::mpsc, task::AbortHandle, time};

use crate::{connect, Error};

const HEARTBEAT: Duration = Duration::from_millis(500);
/// Announced: twice the interval, so that one late heartbeat raises no alarm.
const HEARTBEAT_S: f64 = 1.0;
const GRACE: Duration = Duration::from_secs(10);
const PART_BYTES: usize = 1 << 20;
const MAX_FINISHED: usize = 1000;

/// What a tool says about itself; `main` makes `input_schema` of the type of its arguments.
#[derive(Serialize)]
pub struct Spec {
    pub name: String,
    pub description: String,
    pub input_schema: Value,
    /// JSON Schema of the result, with its annotations; null: anything.
    pub output_schema: Value,
    /// A call may be repeated under the same idempotency key.
    pub idempotent: bool,
    /// none, read, write or external
    pub side_effects: &'static str,
    /// The longest silence; every reply restarts it.
    pub timeout_s: f64,
    pub tags: Vec<String>,
    /// Every call shows itself at least so often.
    pub heartbeat_s: f64,
}

impl Spec {
    pub fn new(name: &str, description: &str) -> Self {
        let (input_schema, output_schema, tags) = (Value::Null, Value::Null, vec![]);
        let (name, description) = (name.into(), description.into());
        let (idempotent, side_effects, timeout_s) = (false, "none", 30.0);
        Spec {
            name,
            description,
            input_schema,
            output_schema,
            idempotent,
            side_effects,
            timeout_s,
            tags,
            heartbeat_s: HEARTBEAT_S,
        }
    }
}

/// A request on `tool.<name>`; `all` has every field.
#[derive(Clone, Deserialize)]
struct Call {
    args: Value,
    idempotency_key: String,
    #[serde(default)]
    round: u32,
    deadline_at: i64,
    start_by: Option<i64>,
    sent_at: Option<i64>,
    #[serde(default)]
    understands_declined: bool,
}

/// Why there is no result. The model reads the reason, so it says what to do differently.
pub struct Refusal {
    pub reason: String,
    pub code: String,
    pub retryable: bool,
}

impl Refusal {
    pub fn new(reason: impl Into<String>) -> Self {
        Refusal { reason: reason.into(), code: "tool_error".into(), retryable: false }
    }

    fn coded(code: &str, reason: impl Into<String>) -> Self {
        Refusal { code: code.into(), ..Refusal::new(reason) }
    }
}

#[derive(Clone)]
struct Reply {
    kind: &'static str,
    body: Vec<u8>,
    parts: Option<usize>,
}

fn reply(kind: &'static str, body: &Value) -> Reply {
    Reply { kind, body: body.to_string().into_bytes(), parts: None }
}

/// A result above 1 MB goes as parts of raw bytes and an empty result that counts them.
fn replies(outcome: Result<Value, Refusal>) -> Vec<Reply> {
    match outcome.map(|value| reply("result", &value)) {
        Err(Refusal { reason, code, retryable }) => {
            vec![reply("failure", &json!({"reason": reason, "code": code, "retryable": retryable}))]
        }
        Ok(whole) if whole.body.len() <= PART_BYTES => vec![whole],
        Ok(whole) => {
            let parts =
                whole.body.chunks(PART_BYTES).map(|part| Reply { kind: "part", body: part.into(), parts: None });
            let mut all: Vec<Reply> = parts.collect();
            let counted = Reply { kind: "result", body: vec![], parts: Some(all.len()) };
            all.push(counted);
            all
        }
    }
}

enum Said {
    Reply(Reply),
    End(Vec<Reply>),
}

/// What a tool's function receives beside its arguments.
#[derive(Clone)]
pub struct Context {
    key: String,
    said: mpsc::UnboundedSender<(String, Said)>,
    /// The whole request, with `call_id`, `run_id` and the caller's `context`.
    pub call: Value,
}

impl Context {
    /// Shows how far the work is: a text for people, a fraction from 0 to 1.
    pub fn progress(&self, message: &str, fraction: f64) {
        self.say(reply("progress", &json!({"message": message, "fraction": fraction})));
    }

    /// Shows a piece of an artifact while it grows: any JSON value up to 128 KiB. Pieces are numbered from 0.
    pub fn artifact(&self, stream_id: &str, seq: u64, chunk: &Value, done: bool) {
        self.say(reply("artifact_chunk", &json!({"stream_id": stream_id, "seq": seq, "chunk": chunk, "done": done})));
    }

    fn say(&self, one: Reply) {
        let _ = self.said.send((self.key.clone(), Said::Reply(one)));
    }
}

/// One call: the subjects that wait for its replies, the pieces sent so far, and how it ended.
#[derive(Default)]
struct State {
    waiting: Vec<Subject>,
    pieces: Vec<Reply>,
    ended: Option<Vec<Reply>>,
    task: Option<AbortHandle>,
}

/// The main function of a tool: serves it until a signal; then it takes no more calls, and those in flight end, within 10 seconds.
///
/// Fails with what to do when NATS refuses the login or the tool.
pub async fn main<A, R, W, F>(mut spec: Spec, work: W) -> Result<(), Error>
where
    A: DeserializeOwned + JsonSchema + Send,
    R: Serialize,
    W: Fn(A, Context) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<R, Refusal>> + Send,
{
    spec.input_schema = schemars::schema_for!(A).to_value();
    let name = spec.name.clone();
    let mut connection = connect(&name).await?;
    let client = connection.client;
    let (mut service, mut requests) = announce(&client, &spec).await?;
    let mut status = client.subscribe(format!("tool.{name}.status")).await?;
    let mut cancel = client.subscribe(format!("tool.{name}.cancel")).await?;
    client.flush().await?;
    println!("serving {name}");

    let (said, mut heard) = mpsc::unbounded_channel();
    let mut calls =
        Calls { client, known: HashMap::new(), order: VecDeque::new(), ahead_ms: 0, declined: HashSet::new() };
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut beat = time::interval(HEARTBEAT);
    let mut until: Option<time::Instant> = None;
    loop {
        if until
            .is_some_and(|until| time::Instant::now() > until || calls.known.values().all(|one| one.ended.is_some()))
        {
            calls.client.flush().await?;
            return Ok(());
        }
        tokio::select! {
            Some(message) = requests.next(), if until.is_none() => {
                if let Some((key, call, all)) = calls.request(message.message).await {
                    let (work, said) = (work.clone(), said.clone());
                    let left = u64::try_from(call.deadline_at - (now_ms() - calls.ahead_ms)).unwrap_or(0);
                    let context = Context { key: key.clone(), said: said.clone(), call: all };
                    let ended = key.clone();
                    let task = tokio::spawn(async move {
                        let args = serde_json::from_value::<A>(call.args).map_err(|error| Refusal::coded("invalid_args", error.to_string()));
                        let worked = async { work(args?, context).await.map(|found| json!(found)) };
                        let outcome = time::timeout(Duration::from_millis(left), worked).await;
                        let late = |_| Err(Refusal::coded("deadline_passed", "the call's deadline passed"));
                        let _ = said.send((ended, Said::End(replies(outcome.unwrap_or_else(late)))));
                    });
                    calls.begin(key, task.abort_handle());
                }
            }
            Some(message) = status.next() => calls.join(&message).await,
            Some(message) = cancel.next() => calls.cancel(&message).await,
            Some((key, one)) = heard.recv() => calls.say(&key, one).await,
            Some(reason) = connection.refused.recv() => {
                let remedy = format!("`runwire credentials tool {name}` gives a credential that allows it");
                return Err(format!("NATS refuses the tool {name} ({reason}): {remedy}").into());
            }
            _ = beat.tick() => calls.beat().await,
            _ = term.recv() => until = Some(stop(&mut service).await),
            _ = int.recv() => until = Some(stop(&mut service).await),
        }
    }
}

async fn announce(client: &Client, spec: &Spec) -> Result<(Option<Service>, Endpoint), Error> {
    let service = client.service_builder().description(&spec.description).start(spec.name.as_str(), "1.0.0").await?;
    let metadata = HashMap::from([("runwire.spec".to_owned(), serde_json::to_string(spec)?)]);
    let endpoint = service.endpoint_builder().name(&spec.name).metadata(metadata).queue_group(&spec.name);
    let endpoint = endpoint.add(format!("tool.{}", spec.name)).await?;
    Ok((Some(service), endpoint))
}

async fn stop(service: &mut Option<Service>) -> time::Instant {
    if let Some(service) = service.take() {
        let _ = service.stop().await;
    }
    time::Instant::now() + GRACE
}

struct Calls {
    client: Client,
    known: HashMap<String, State>,
    /// Of calls that have ended; the oldest are forgotten.
    order: VecDeque<String>,
    ahead_ms: i64,
    declined: HashSet<String>,
}

impl Calls {
    /// A call that is to be begun. All others are answered.
    async fn request(&mut self, message: Message) -> Option<(String, Call, Value)> {
        let to = message.reply?;
        let all: Value = serde_json::from_slice(&message.payload).unwrap_or_default();
        let Ok(call) = Call::deserialize(&all) else {
            self.send(&to, &replies(Err(Refusal::coded("bad_request", "not a tool call")))).await;
            return None;
        };
        let key = key_of(&call.idempotency_key, call.round);
        if self.known.contains_key(&key) {
            self.join_call(&key, to).await;
        } else if !self.is_late(&key, &call) {
            self.known.entry(key.clone()).or_default();
            self.join_call(&key, to).await;
            return Some((key, call, all));
        } else if call.understands_declined {
            self.declined.insert(key);
            self.send(&to, &[reply("declined", &json!({"reason": "late"}))]).await;
        } else {
            let refusal = Refusal::coded("deadline_passed", "the call came too late and was not started");
            self.send(&to, &replies(Err(Refusal { retryable: true, ..refusal }))).await;
        }
        None
    }

    fn is_late(&mut self, key: &str, call: &Call) -> bool {
        let now = now_ms();
        if let Some(sent) = call.sent_at {
            let seems = now - sent;
            self.ahead_ms = if self.declined.remove(key) { seems } else { self.ahead_ms.min(seems) };
        }
        now - self.ahead_ms > call.deadline_at.min(call.start_by.unwrap_or(call.deadline_at))
    }

    fn begin(&mut self, key: String, task: AbortHandle) {
        self.known.entry(key).or_default().task = Some(task);
    }

    async fn join(&mut self, message: &Message) {
        if let (Some(key), Some(to)) = (keyed(message), message.reply.clone()) {
            self.join_call(&key, to).await;
        }
    }

    async fn join_call(&mut self, key: &str, to: Subject) {
        let Some(state) = self.known.get_mut(key) else { return };
        let missed = state.ended.clone().unwrap_or_else(|| [vec![heartbeat()], state.pieces.clone()].concat());
        if state.ended.is_none() && !state.waiting.contains(&to) {
            state.waiting.push(to.clone());
        }
        self.send(&to, &missed).await;
    }

    async fn cancel(&mut self, message: &Message) {
        let Some(key) = keyed(message) else { return };
        if let Some(task) = self.known.get(&key).and_then(|state| state.task.as_ref()) {
            task.abort();
        }
        self.say(&key, Said::End(replies(Err(Refusal::coded("cancelled", "the call was cancelled"))))).await;
    }

    async fn say(&mut self, key: &str, said: Said) {
        let Some(state) = self.known.get_mut(key).filter(|state| state.ended.is_none()) else { return };
        let waiting = state.waiting.clone();
        let sent = match said {
            Said::Reply(one) => {
                if one.kind == "artifact_chunk" {
                    state.pieces.push(one.clone());
                }
                vec![one]
            }
            Said::End(all) => {
                *state = State { ended: Some(all.clone()), ..State::default() };
                self.order.push_back(key.to_owned());
                all
            }
        };
        for to in &waiting {
            self.send(to, &sent).await;
        }
        while self.order.len() > MAX_FINISHED {
            self.order.pop_front().and_then(|oldest| self.known.remove(&oldest));
        }
    }

    async fn beat(&mut self) {
        for to in self.known.values().flat_map(|state| &state.waiting) {
            self.send(to, &[heartbeat()]).await;
        }
    }

    /// What cannot be sent is repeated by its caller, who asks again.
    async fn send(&self, to: &Subject, replies: &[Reply]) {
        for one in replies {
            let mut headers = HeaderMap::new();
            headers.insert("Runwire-Reply", one.kind);
            if let Some(parts) = one.parts {
                headers.insert("Runwire-Parts", parts.to_string());
            }
            let _ = self.client.publish_with_headers(to.clone(), headers, one.body.clone().into()).await;
        }
    }
}

fn heartbeat() -> Reply {
    reply("heartbeat", &json!({"every_s": HEARTBEAT_S}))
}

/// Of a round of a call: after a pause the function runs again.
fn key_of(idempotency_key: &str, round: u32) -> String {
    format!("{idempotency_key}~{round}")
}

fn keyed(message: &Message) -> Option<String> {
    #[derive(Deserialize)]
    struct Keyed {
        idempotency_key: String,
        #[serde(default)]
        round: u32,
    }
    let found: Keyed = serde_json::from_slice(&message.payload).ok()?;
    Some(key_of(&found.idempotency_key, found.round))
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
