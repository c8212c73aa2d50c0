//! Follows one run, live: watch <run id> [tenant]. Prints an event a line and ends with the run.

#[tokio::main]
async fn main() -> Result<(), runwire::Error> {
    let mut given = std::env::args().skip(1);
    let run = given.next().ok_or("usage: watch <run id> [tenant]")?;
    let tenant = given.next().unwrap_or_else(|| "default".into());
    let connection = runwire::connect("watch").await?;
    runwire::follow(&connection.client, &tenant, &run, |record| {
        if record.missed {
            eprintln!("earlier events of the {} may be missing, before number {}", record.kind, record.sequence);
        }
        for event in &record.events {
            println!("{} {} {} {event}", record.kind, record.sequence, event["type"].as_str().unwrap_or(""));
        }
    })
    .await
}
