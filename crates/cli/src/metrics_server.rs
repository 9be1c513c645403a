//! `--metrics`: the metrics of a mount by HTTP, for Prometheus. Of HTTP it knows as much as that needs: one request a connection, of
//! which the first line counts, and an answer.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use futures_util::{FutureExt as _, select_biased};
use tracing::Level;
use weir_fuse::StatusReader;
use weir_runtime::{Handle, Listener, Semaphore, Socket, Task};

use crate::log_line::LogLine;
use crate::metrics;

/// Bytes of a request at most.
const REQUEST_MAX: usize = 8 << 10;
/// How long a client may take for its request and its answer.
const CLIENT_PATIENCE: Duration = Duration::from_secs(10);
/// Clients that are served at one time; the others wait.
const CLIENTS_MAX: usize = 8;

/// Answers those who connect, as long as the task lives.
pub(crate) fn serve_metrics(handle: &Handle, listener: Listener, status: StatusReader) -> Task<()> {
    handle.spawn(answer_clients(handle.clone(), listener, status))
}

async fn answer_clients(handle: Handle, listener: Listener, status: StatusReader) {
    let clients = Semaphore::new(CLIENTS_MAX);
    loop {
        let socket = match listener.accept().await {
            Ok(socket) => socket,
            Err(error) => {
                let message = format!("metrics are not served any more: {error}");
                return LogLine::new(Level::WARN, "metrics_ended", message)
                    .with("reason", error.to_string())
                    .print();
            }
        };
        let permit = clients.acquire(1).await;
        let (client, status) = (handle.clone(), Rc::clone(&status));
        drop(handle.spawn(async move {
            let _permit = permit;
            // A client that sends no request, or takes no answer, is dropped.
            select_biased! {
                _ = answer_client(&socket, &status).fuse() => {}
                () = client.sleep(CLIENT_PATIENCE).fuse() => {}
            }
        }));
    }
}

async fn answer_client(socket: &Socket, status: &StatusReader) -> io::Result<()> {
    let request = receive_request(socket).await?;
    let answer = match request_path(&request) {
        Some(b"/metrics") => match metrics::text_of(&status().await) {
            Ok(text) => answer("200 OK", &text),
            Err(error) => answer("500 Internal Server Error", &format!("{error}\n")),
        },
        Some(_) => answer("404 Not Found", "the metrics are at /metrics\n"),
        None => answer("400 Bad Request", "write GET /metrics HTTP/1.1\n"),
    };
    socket.send(answer.as_bytes()).await
}

/// Receives the head of a request, up to the empty line.
async fn receive_request(socket: &Socket) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        let bytes = socket.receive(&mut buffer).await?;
        if bytes == 0 || request.len() + bytes > REQUEST_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        request.extend_from_slice(&buffer[..bytes]);
    }
    Ok(request)
}

/// What a GET is for, without a query.
fn request_path(request: &[u8]) -> Option<&[u8]> {
    let line = request.split(|byte| *byte == b'\r').next()?;
    let mut words = line.split(|byte| *byte == b' ');
    let (method, path, version) = (words.next()?, words.next()?, words.next()?);
    let is_get = method == b"GET"
        && path.starts_with(b"/")
        && version.starts_with(b"HTTP/1.")
        && words.next().is_none();
    is_get.then(|| path.split(|byte| *byte == b'?').next().unwrap_or(path))
}

fn answer(outcome: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {outcome}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_get_has_a_path() {
        let path =
            |line: &str| request_path(line.as_bytes()).map(|path| String::from_utf8(path.into()).unwrap());
        assert_eq!(path("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").as_deref(), Some("/metrics"));
        assert_eq!(path("GET /metrics?a=b HTTP/1.0\r\n\r\n").as_deref(), Some("/metrics"));
        for wrong in [
            "",
            "\r\n\r\n",
            "POST /metrics HTTP/1.1\r\n",
            "GET /metrics\r\n",
            "GET / a HTTP/1.1\r\n",
            "GET  HTTP/1.1\r\n",
        ] {
            assert_eq!(path(wrong), None, "{wrong}");
        }
    }
}
