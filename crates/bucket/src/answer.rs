//! What a store's answer means for a replica. Its text is cut to what names the cause: stores repeat keys and signed text.

use std::error::Error as _;

use object_store::Error;
use weir_replica::StoreError;

/// Bytes of a store's text that are told at most.
const TOLD_MAX: usize = 300;

/// Characters of a secret at least: shorter values, as of tests, occur in other words.
const SECRET_MIN: usize = 8;

/// Variables whose values are never told, if they are long enough to be secrets.
const SECRETS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// Behind these words the crate `object_store` writes the status of HTTP, and then the body of the answer. No URL has spaces in it.
const BEFORE_STATUS: &str = "Server returned non-2xx status code: ";

/// Statuses of requests that may succeed later as they are, of those that are the client's fault.
const COME_AGAIN: [u16; 3] = [408, 409, 429];

/// What the text of an error says of its cause. A key or a URL in it may have any digits and words, so these are looked for only where
/// the text of an answer stands.
struct Cause<'a> {
    status: Option<u16>,
    /// S3's word for it.
    code: Option<&'a str>,
    text: &'a str,
}

impl Cause<'_> {
    fn of(text: &str) -> Cause<'_> {
        let answer = text.rsplit_once(BEFORE_STATUS).map(|(_, answer)| answer);
        let status = answer.and_then(|answer| answer.get(..3)?.parse().ok());
        // The second one is that of a deletion, of which the crate reads the answer.
        let code = between(answer.unwrap_or(text), "<Code>", "</Code>");
        let code = code.or_else(|| between(text.get(text.rfind(" (code: ")?..)?, " (code: ", ")"));
        Cause { status, code, text }
    }

    /// It has one of these statuses, or of these words of S3.
    fn is(&self, statuses: &[u16], codes: &[&str]) -> bool {
        self.status.is_some_and(|status| statuses.contains(&status))
            || self.code.is_some_and(|code| codes.contains(&code))
    }

    /// It has one of these sentences, which are of the crate, of the system, or of stores that tell what their system says.
    fn says(&self, sentences: &[&str]) -> bool {
        sentences.iter().any(|sentence| self.text.contains(sentence))
    }
}

/// What an answer of the store about the object `key` means.
pub(crate) fn store_error(key: &str, error: &Error) -> StoreError {
    let (whole, text) = (whole_text(error), told(error));
    let cause = Cause::of(&whole);
    if cause.is(
        &[301],
        &["NoSuchBucket", "AuthorizationHeaderMalformed", "PermanentRedirect", "InvalidBucketName"],
    ) || cause.says(&["Received redirect without LOCATION"])
    {
        return StoreError::NoPlace(text);
    }
    if cause.is(&[507], &["QuotaExceeded", "InsufficientStorage", "XMinioStorageFull"])
        || cause.says(&["No space left", "quota exceeded"])
    {
        return StoreError::Full(text);
    }
    if cause.is(
        &[403],
        &["ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AccessDenied"],
    ) {
        return StoreError::Denied(text);
    }
    // A range that the object does not have, or a store that has no ranges.
    let no_range =
        ["Wanted range starting", "Out of range of file", "non-partial response", "Content-Range header"];
    if cause.is(&[416], &["InvalidRange"]) || cause.says(&no_range) {
        return StoreError::Refused(text);
    }
    let is_refused = cause.status.is_some_and(|status| {
        (400..500).contains(&status) && !COME_AGAIN.contains(&status) && !cause.is(&[], &["RequestTimeout"])
    });
    match error {
        Error::NotFound { .. } => StoreError::Missing(key.to_owned()),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => StoreError::Denied(text),
        Error::NotImplemented { .. } | Error::NotSupported { .. } => StoreError::NoCondition,
        Error::Generic { .. } if cause.is(&[501], &["NotImplemented"]) => StoreError::NoCondition,
        Error::Generic { .. } if is_refused => StoreError::Refused(text),
        Error::Generic { .. } | Error::JoinError { .. } => StoreError::Unreachable(text),
        _ => StoreError::Refused(text),
    }
}

fn between<'a>(text: &'a str, before: &str, behind: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(behind)?.0)
}

fn whole_text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// An error as it may be told.
pub(crate) fn told(error: &Error) -> String {
    let mut text = shortened(&whole_text(error));
    for secret in SECRETS.into_iter().filter_map(|name| std::env::var(name).ok()) {
        if secret.len() >= SECRET_MIN {
            text = text.replace(&secret, "...");
        }
    }
    text
}

/// Of the XML of S3 what names the cause; of other text the beginning.
fn shortened(text: &str) -> String {
    let text = match (between(text, "<Code>", "</Code>"), between(text, "<Message>", "</Message>")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        _ => text.split('<').next().unwrap_or("").to_owned(),
    };
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TOLD_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_store_is_cut_to_its_cause() {
        let xml = "Server returned 403: <?xml?><Error><Code>SignatureDoesNotMatch</Code><Message>It differs.</Message>\
                   <AWSAccessKeyId>AKIDSECRET</AWSAccessKeyId><StringToSign>AWS4</StringToSign></Error>";
        assert_eq!(shortened(xml), "SignatureDoesNotMatch: It differs.");
        assert_eq!(shortened("connection refused"), "connection refused");
        assert_eq!(shortened("a <b>secret</b>"), "a ");
    }

    /// What an answer to a request for this key means: a text of the crate `object_store`, with the status that it has.
    fn meaning(key: &str, answer: &str) -> StoreError {
        let text = format!("Error performing PUT http://127.0.0.1:8333/bucket/{key} in 1.204s - {answer}");
        store_error(key, &Error::Generic { store: "S3", source: text.into() })
    }

    fn xml(status: &str, code: &str) -> String {
        format!(
            "{BEFORE_STATUS}{status}: <?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message>\
             <Resource>/bucket/log/00000000000000000001-00000501</Resource></Error>"
        )
    }

    /// An answer means the same whatever the key has in it, and whatever the words of its text are.
    #[test]
    fn a_status_is_read_from_the_answer_and_not_from_the_key() {
        type Meaning = fn(String) -> StoreError;
        let answers: [(String, Meaning); 20] = [
            ("HTTP error: error sending request".to_owned(), StoreError::Unreachable),
            ("no answer within 60s".to_owned(), StoreError::Unreachable),
            (xml("503 Service Unavailable", "SlowDown"), StoreError::Unreachable),
            (xml("500 Internal Server Error", "InternalError"), StoreError::Unreachable),
            (xml("408 Request Timeout", "RequestTimeout"), StoreError::Unreachable),
            (xml("400 Bad Request", "RequestTimeout"), StoreError::Unreachable),
            (xml("429 Too Many Requests", "TooManyRequests"), StoreError::Unreachable),
            (xml("403 Forbidden", "RequestTimeTooSkewed"), StoreError::Denied),
            (xml("400 Bad Request", "ExpiredToken"), StoreError::Denied),
            (xml("507 Insufficient Storage", "InsufficientStorage"), StoreError::Full),
            (xml("500 Internal Server Error", "QuotaExceeded"), StoreError::Full),
            (format!("{BEFORE_STATUS}500 Internal Server Error: No space left on device"), StoreError::Full),
            (xml("416 Range Not Satisfiable", "InvalidRange"), StoreError::Refused),
            (xml("400 Bad Request", "InvalidArgument"), StoreError::Refused),
            (format!("{BEFORE_STATUS}405 Method Not Allowed: "), StoreError::Refused),
            (xml("501 Not Implemented", "NotImplemented"), |_| StoreError::NoCondition),
            (xml("404 Not Found", "NoSuchBucket"), StoreError::NoPlace),
            (format!("{BEFORE_STATUS}301 Moved Permanently: "), StoreError::NoPlace),
            (
                "Received redirect without LOCATION, this normally indicates an incorrectly configured region"
                    .to_owned(),
                StoreError::NoPlace,
            ),
            (
                "DeleteObjects request failed for key log/501: you may not (code: AccessDenied)".to_owned(),
                StoreError::Denied,
            ),
        ];
        let parts = ["301", "400", "403", "408", "409", "416", "429", "501", "507", "503"];
        let keys = parts.map(|part| format!("log/00000000000000000001-00000{part}"));
        let keys = keys.into_iter().chain(["AccessDenied/NoSuchBucket/NotImplemented/epoch/1".to_owned()]);
        for key in keys {
            for (answer, expected) in &answers {
                let found = meaning(&key, answer);
                let expected = expected(String::new());
                assert_eq!(
                    std::mem::discriminant(&found),
                    std::mem::discriminant(&expected),
                    "{key}: {answer}: {found:?}"
                );
            }
        }
    }
}
