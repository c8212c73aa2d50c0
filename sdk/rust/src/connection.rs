//! The connection to NATS. It takes the first of: a credential file (RUNWIRE_NATS_CREDENTIALS), RUNWIRE_NATS_URL, NATS_URL, and
//! nats://127.0.0.1:4222.

use std::{env, fs, path::Path, time::Duration};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use tokio::sync::mpsc;

use crate::Error;

const PAUSE: Duration = Duration::from_millis(250);

pub struct Connection {
    pub client: Client,
    /// Receives what the server refuses, as after the login was revoked.
    pub refused: mpsc::UnboundedReceiver<String>,
}

/// A credential file, in the form of a context of the `nats` command. A URL tls://, or the authority `ca`, demands TLS.
#[derive(serde::Deserialize)]
struct Login {
    url: String,
    user: Option<String>,
    password: Option<String>,
    ca: Option<String>,
}

/// Waits for a server that is not there yet. Fails with what to do when the server refuses the login.
pub async fn connect(name: &str) -> Result<Connection, Error> {
    let login = find()?;
    let servers: Vec<ServerAddr> =
        login.url.split(',').map(|one| one.trim().parse()).collect::<Result<_, _>>().map_err(
            |_| "the URL of NATS must have the form nats://[user:password@]host:port, or tls://", // Its text may hold the password.
        )?;
    let user = login.user.or_else(|| servers[0].username().map(str::to_owned)).filter(|user| !user.is_empty());
    let password = login.password.or_else(|| servers[0].password().map(str::to_owned)).unwrap_or_default();
    let mut waits = false;
    loop {
        let (refuse, refused) = mpsc::unbounded_channel();
        let mut options = ConnectOptions::new()
            .name(format!("{name} (runwire-rust {})", env!("CARGO_PKG_VERSION")))
            .event_callback(move |event| {
                if let Event::ServerError(error) = event {
                    let _ = refuse.send(error.to_string());
                }
                async {}
            });
        if let Some(user) = &user {
            options =
                options.user_and_password(user.clone(), password.clone()).custom_inbox_prefix(format!("_INBOX.{user}"));
        }
        if let Some(ca) = &login.ca {
            options = options.add_root_certificates(ca.into()).require_tls(true);
        }
        match options.connect(&servers).await {
            Ok(client) => return Ok(Connection { client, refused }),
            Err(error) => match error.kind() {
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                    let user = user.as_deref().unwrap_or_default();
                    let remedy =
                        "set RUNWIRE_NATS_CREDENTIALS to a credential file, which `runwire credentials` writes, or \
                                  RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD";
                    return Err(format!("NATS refuses the user {user:?} ({error}): {remedy}").into());
                }
                ConnectErrorKind::Io | ConnectErrorKind::Dns | ConnectErrorKind::TimedOut => {
                    if !waits {
                        eprintln!("waiting for NATS: {error}");
                    }
                    waits = true;
                    tokio::time::sleep(PAUSE).await;
                }
                _ => return Err(format!("{error}: is RUNWIRE_NATS_CA the server's certificate authority?").into()),
            },
        }
    }
}

fn find() -> Result<Login, Error> {
    let set = |name: &str| env::var(name).ok().filter(|text| !text.is_empty());
    let Some(file) = set("RUNWIRE_NATS_CREDENTIALS") else {
        let url = set("RUNWIRE_NATS_URL").or(set("NATS_URL")).unwrap_or_else(|| "nats://127.0.0.1:4222".into());
        let (user, password) = (set("RUNWIRE_NATS_USER"), set("RUNWIRE_NATS_PASSWORD"));
        return Ok(Login { url, user, password, ca: set("RUNWIRE_NATS_CA") });
    };
    let text = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    // The error would show a part of the file.
    let login: Login = serde_json::from_str(&text)
        .map_err(|_| format!("{file} is no credential file: it needs url, user and password"))?;
    let folder = Path::new(&file).parent().unwrap_or(Path::new(""));
    let ca = login.ca.map(|ca| folder.join(ca).to_string_lossy().into_owned()).or(set("RUNWIRE_NATS_CA"));
    Ok(Login { ca, ..login })
}
