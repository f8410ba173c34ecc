//! walpost as a service of systemd's, which listens on a datagram socket: ready, alive, stopping.

use std::{
    os::unix::net::UnixDatagram,
    path::PathBuf,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::support::{
    eventually,
    kafka::Kafka,
    outbox::Outbox,
    postgres::{MAIN, Postgres},
    process::Signal,
    walpost::{Walpost, walpost},
};

const WITHIN: Duration = Duration::from_secs(60);

/// The service manager's end.
struct Manager {
    _folder: TempDir,
    path: PathBuf,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Manager {
        let folder = TempDir::new().expect("a folder can be made");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("the folder takes a socket");
        Manager { _folder: folder, path, socket }
    }

    fn start(&self, configuration: &str) -> Walpost {
        let socket = self.path.to_str().expect("the folder has a plain name");
        Walpost::start_with(configuration, &[], &[("NOTIFY_SOCKET", socket), ("WATCHDOG_USEC", "1000000")])
    }

    /// All lines that come until one is this; none when that takes too long.
    fn until(&self, line: &str, within: Duration) -> Option<Vec<String>> {
        let end = Instant::now() + within;
        let mut lines = Vec::new();
        let mut datagram = [0; 4096];
        while !lines.iter().any(|told| told == line) {
            let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            self.socket.set_read_timeout(Some(left)).expect("it is not zero");
            let Ok(length) = self.socket.recv(&mut datagram) else { continue };
            lines.extend(String::from_utf8_lossy(&datagram[..length]).lines().map(str::to_owned));
        }
        Some(lines)
    }

    fn empty(&self) {
        self.socket.set_nonblocking(true).expect("a socket");
        while self.socket.recv(&mut [0; 4096]).is_ok() {}
        self.socket.set_nonblocking(false).expect("a socket");
    }
}

#[test]
fn systemd_hears_of_readiness_of_life_and_of_the_stop() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let configuration = outbox.configuration(Kafka::shared(), "");
    let (first, second) = (Manager::new(), Manager::new());

    let holder = first.start(&configuration);
    let told = first.until("READY=1", WITHIN).expect("it gets ready");
    assert!(told[0].starts_with("STATUS=connecting") && told.contains(&"STATUS=streaming".to_owned()), "{told:?}");
    holder.streams(&outbox, WITHIN);

    // What a container's health check asks.
    let url = format!("--url=http://{}", holder.listens());
    let health = |more: &[&str]| walpost(&[&["health", &url], more].concat());
    let answer = health(&[]);
    assert_eq!((answer.code, answer.stdout.as_str()), (0, "streaming\n"), "{}", answer.stderr);
    eventually(WITHIN, "it is ready", || (health(&["--ready"]).code == 0).then_some(()));

    let standby = second.start(&configuration);
    let told = second.until("READY=1", WITHIN).expect("a standby is ready");
    assert!(told.iter().any(|line| line.starts_with("STATUS=standby: ") && line.contains("in use")), "{told:?}");

    for _ in 0..3 {
        first.until("WATCHDOG=1", Duration::from_secs(10)).expect("it gives a sign twice in a second");
    }
    holder.signal(Signal::Stop);
    first.empty();
    assert_eq!(first.until("WATCHDOG=1", Duration::from_secs(2)), None, "who hangs gives no sign");
    holder.signal(Signal::Cont);
    first.until("WATCHDOG=1", WITHIN).expect("it goes on");

    assert_eq!(holder.terminate(WITHIN), 0);
    assert_eq!(health(&[]).code, 1, "nobody answers");
    let told = first.until("STOPPING=1", Duration::from_secs(1)).expect("it says that it stops");
    assert!(!told.contains(&"READY=1".to_owned()), "once: {told:?}");
    second.until("STATUS=streaming", WITHIN).expect("the standby takes over");
    assert_eq!(standby.terminate(WITHIN), 0);
}
