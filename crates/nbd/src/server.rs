//! All clients of an export.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use futures_util::{FutureExt as _, select_biased};
use tracing::{info, warn};
use weir_export::Export;
use weir_runtime::{Event, Handle, Listener, Socket, Task};

use crate::connection::serve_connection;

/// Clients that are served at one time; others are turned away.
pub const CONNECTIONS_MAX: usize = 32;
/// How long the end waits for clients to take their replies.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// The clients that are served now.
#[derive(Default)]
pub struct Connections {
    open: RefCell<BTreeMap<u64, Rc<Socket>>>,
    next: Cell<u64>,
    ended: Event,
}

impl Connections {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.open.borrow().len()
    }
}

/// A server of one export. Its clients are served as long as its runtime runs.
pub struct NbdServer {
    handle: Handle,
    connections: Rc<Connections>,
    accepting: Task<io::Error>,
}

impl NbdServer {
    /// Serves all who connect.
    #[must_use]
    pub fn start(handle: &Handle, listener: Listener, export: Rc<Export>) -> NbdServer {
        let connections = Rc::<Connections>::default();
        let accepting = handle.spawn(accept(handle.clone(), listener, export, Rc::clone(&connections)));
        NbdServer { handle: handle.clone(), connections, accepting }
    }

    /// Its clients, for those who look at it.
    #[must_use]
    pub fn connections(&self) -> Rc<Connections> {
        Rc::clone(&self.connections)
    }

    /// Waits until nobody can connect any more; why.
    pub async fn failed(&mut self) -> io::Error {
        (&mut self.accepting).await.unwrap_or_else(io::Error::other)
    }

    /// Takes in no more connections and requests, and answers those that are under way, as far as clients take their
    /// replies within 5 s.
    pub async fn stop(self) {
        self.accepting.cancel();
        let Connections { open, ended, .. } = &*self.connections;
        open.borrow().values().for_each(|socket| socket.end_receiving());
        let all_ended = async {
            while !open.borrow().is_empty() {
                ended.listen().await;
            }
        };
        select_biased! {
            () = all_ended.fuse() => {}
            () = self.handle.sleep(STOP_PATIENCE).fuse() => {
                open.borrow().values().for_each(|socket| socket.close());
            }
        }
    }
}

async fn accept(
    handle: Handle,
    listener: Listener,
    export: Rc<Export>,
    connections: Rc<Connections>,
) -> io::Error {
    loop {
        let socket = match listener.accept().await {
            Ok(socket) => Rc::new(socket),
            Err(error) => return error,
        };
        if connections.open.borrow().len() >= CONNECTIONS_MAX {
            warn!(name: "client_refused", most = CONNECTIONS_MAX, "a client was turned away");
            continue;
        }
        let number = connections.next.get();
        connections.next.set(number + 1);
        connections.open.borrow_mut().insert(number, Rc::clone(&socket));
        let (handle_of_client, export, connections) =
            (handle.clone(), Rc::clone(&export), Rc::clone(&connections));
        drop(handle.spawn(async move {
            info!(name: "client_connected", client = number, "connected");
            match serve_connection(&handle_of_client, &export, &socket).await {
                Ok(()) => info!(name: "client_disconnected", client = number, "disconnected"),
                Err(error) => warn!(name: "client_dropped", client = number, %error, "dropped"),
            }
            connections.open.borrow_mut().remove(&number);
            connections.ended.notify(usize::MAX);
        }));
    }
}
