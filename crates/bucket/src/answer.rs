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

/// What an answer of the store about the object `key` means.
pub(crate) fn store_error(key: &str, error: &Error) -> StoreError {
    let (all, text) = (whole_text(error), told(error));
    let has = |words: &[&str]| words.iter().any(|word| all.contains(word));
    if has(&[
        "NoSuchBucket",
        "AuthorizationHeaderMalformed",
        "PermanentRedirect",
        "InvalidBucketName",
        "301 Moved",
    ]) {
        return StoreError::NoPlace(text);
    }
    if has(&[
        "QuotaExceeded",
        "InsufficientStorage",
        "507 ",
        "No space left",
        "quota exceeded",
        "XMinioStorageFull",
    ]) {
        return StoreError::Full(text);
    }
    if has(&[
        "ExpiredToken",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "InvalidToken",
        "AccessDenied",
        "403 ",
    ]) {
        return StoreError::Denied(text);
    }
    // A range that the object does not have, or a store that has no ranges.
    if has(&[
        "416 ",
        "InvalidRange",
        "Wanted range starting",
        "Out of range of file",
        "non-partial response",
        "Content-Range",
    ]) {
        return StoreError::Refused(text);
    }
    match error {
        Error::NotFound { .. } => StoreError::Missing(key.to_owned()),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => StoreError::Denied(text),
        Error::NotImplemented { .. } | Error::NotSupported { .. } => StoreError::NoCondition,
        Error::Generic { .. } if has(&["501 ", "NotImplemented"]) => StoreError::NoCondition,
        Error::Generic { .. } if has(&["status 4", "400 "]) && !has(&["408", "409", "429"]) => {
            StoreError::Refused(text)
        }
        Error::Generic { .. } | Error::JoinError { .. } => StoreError::Unreachable(text),
        _ => StoreError::Refused(text),
    }
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
    let between = |tag: &str| {
        let (_, rest) = text.split_once(&format!("<{tag}>"))?;
        Some(rest.split_once(&format!("</{tag}>"))?.0)
    };
    let text = match (between("Code"), between("Message")) {
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
}
