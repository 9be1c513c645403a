//! What the environment says of a store in the cloud, checked before the library takes it: the library panics on an endpoint that is
//! no URL, and without credentials asks the cloud's metadata service, which elsewhere answers late or never.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::place::PlaceError;

/// Variables that may name the store.
pub(crate) const ENDPOINTS: [&str; 3] = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"];

/// Variables whose values become parts of a request's head.
const IN_HEAD: [&str; 5] =
    ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"];

/// Ways to credentials: for each, the variables that choose it. Of a key and its secret one is enough here: the library says that
/// the other one is missing.
const CREDENTIALS: [&[&str]; 6] = [
    &["AWS_ACCESS_KEY_ID"],
    &["AWS_SECRET_ACCESS_KEY"],
    &["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"],
    &["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"],
    &["AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"],
    &["AWS_METADATA_ENDPOINT"],
];

/// Checks variables, of which `value` gives those that are set.
pub(crate) fn check(value: impl Fn(&str) -> Option<String>) -> Result<(), PlaceError> {
    for name in ENDPOINTS.into_iter().chain(["AWS_METADATA_ENDPOINT"]) {
        if value(name).is_some_and(|url| !is_endpoint(&url)) {
            return Err(PlaceError::Endpoint(name));
        }
    }
    for name in IN_HEAD {
        if value(name).is_some_and(|text| !text.chars().all(|c| c.is_ascii_graphic())) {
            return Err(PlaceError::Characters(name));
        }
    }
    let is_set = |name: &&str| value(name).is_some_and(|text| !text.is_empty());
    let is_unsigned = value("AWS_SKIP_SIGNATURE").is_some_and(|text| text == "true");
    if is_unsigned || CREDENTIALS.iter().any(|way| way.iter().all(is_set)) {
        Ok(())
    } else {
        Err(PlaceError::NoCredentials)
    }
}

/// Whether it is the URL of a server: `http://HOST`, or `https://HOST`, with a port and a path or without.
fn is_endpoint(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let Some((server, path)) = rest.map(|rest| rest.split_once('/').unwrap_or((rest, ""))) else {
        return false;
    };
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (server, "80"),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~');
    is_host(host) && port.parse::<u16>().is_ok() && path.chars().all(|c| is_plain(c) || c == '/')
}

fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or("");
    if last.starts_with(|c: char| c.is_ascii_digit()) {
        return host.parse::<Ipv4Addr>().is_ok();
    }
    !last.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(set: &[(&str, &str)]) -> Result<(), PlaceError> {
        check(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b/+=")];

    #[test]
    fn an_endpoint_is_the_url_of_a_server() {
        for right in [
            "http://localhost:8333",
            "https://s3.example.org",
            "http://127.0.0.1:9/",
            "https://[::1]:9000/a/b",
            "http://minio",
        ] {
            assert_eq!(checked(&[&KEYS[..], &[("AWS_ENDPOINT_URL", right)]].concat()), Ok(()), "{right}");
        }
        for wrong in [
            "",
            "localhost:8333",
            "s3.example.org",
            "http://",
            "https:///a",
            "http://host:99999",
            "http://host:",
            "http://a b",
            "http://1.2.3.999",
            "http://[::zz]",
            "http://key:secret@host",
            "ftp://host",
            "http://host/a?b",
            "http://h\u{f6}st",
        ] {
            for name in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_METADATA_ENDPOINT"] {
                let found = checked(&[&KEYS[..], &[(name, wrong)]].concat());
                assert_eq!(found, Err(PlaceError::Endpoint(name)), "{wrong}");
            }
        }
    }

    #[test]
    fn a_value_that_no_head_of_a_request_takes_is_named() {
        let found = checked(&[KEYS[0], KEYS[1], ("AWS_SESSION_TOKEN", "a\n")]);
        assert_eq!(found, Err(PlaceError::Characters("AWS_SESSION_TOKEN")));
    }

    #[test]
    fn without_credentials_the_cloud_is_asked_only_if_that_was_chosen() {
        assert_eq!(checked(&[]), Err(PlaceError::NoCredentials));
        assert_eq!(
            checked(&[("AWS_ACCESS_KEY_ID", ""), ("AWS_ROLE_ARN", "a")]),
            Err(PlaceError::NoCredentials)
        );
        // The library says that the other one is missing.
        assert_eq!(checked(&KEYS[..1]), Ok(()));
        assert_eq!(checked(&[("AWS_METADATA_ENDPOINT", "http://169.254.169.254")]), Ok(()));
        assert_eq!(checked(&[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/a")]), Ok(()));
        assert_eq!(checked(&[("AWS_SKIP_SIGNATURE", "true")]), Ok(()));
    }
}
