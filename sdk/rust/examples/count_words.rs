//! A tool, whose schema is made of its types.

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Args {
    /// any text
    text: String,
}

#[tokio::main]
async fn main() -> Result<(), runwire::Error> {
    let spec = runwire::Spec { idempotent: true, ..runwire::Spec::new("count_words", "Count the words of a text") };
    runwire::main(spec, |args: Args, context| async move {
        context.progress("counting", 0.5);
        match args.text.split_whitespace().count() {
            0 => Err(runwire::Refusal::new("the text is empty; give one with words")),
            words => Ok(serde_json::json!({ "words": words })),
        }
    })
    .await
}
