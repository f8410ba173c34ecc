//! Where test servers live: a folder for this process, ports nobody uses, the cache of downloaded servers, and the user
//! that PostgreSQL runs as.

use std::{
    collections::HashSet,
    env,
    ffi::OsString,
    fs,
    hash::{BuildHasher, RandomState},
    net::TcpListener,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        LazyLock, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use super::process::run;

/// Removes the folder when the pipe to the test process closes. Servers may still be writing while they end.
const SWEEPER: &str = r#"
read -r line
tries=0
while [ "$tries" -lt 100 ] && ! rm -rf "$1" 2>/dev/null; do tries=$((tries + 1)); sleep 0.1; done
"#;

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder =
        tempfile::Builder::new().prefix("walpost-e2e-").tempdir().expect("a temporary folder can be made").keep();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("the folder is ours");
    if env::var_os("WALPOST_TEST_KEEP").is_none() {
        let sweeper = Command::new("sh")
            .args(["-c", SWEEPER, "sweeper"])
            .arg(&folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        // The pipe must stay open as long as the process lives.
        std::mem::forget(sweeper.expect("a shell can be started"));
    }
    folder
});

/// A new folder of this process, removed when the process ends unless `WALPOST_TEST_KEEP` is set.
pub fn folder(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let folder = FOLDER.join(format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir(&folder).expect("the name is new");
    folder
}

/// A loopback port that nobody listens on and that this process never gave out before. It lies below the range from
/// which the kernel takes ports for outgoing connections, so that a stopped server finds it free when it comes back.
pub fn port() -> u16 {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut given = GIVEN.lock().expect("no one panics while holding it");
    let given = given.get_or_insert_with(HashSet::new);
    for attempt in 0..1000_u32 {
        let port = 15_000 + (RandomState::new().hash_one(attempt) % 15_000) as u16;
        if !given.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            given.insert(port);
            return port;
        }
    }
    panic!("no free port between 15000 and 30000");
}

/// Where `scripts/provision.sh` keeps servers; the same rule as there.
pub fn cache() -> PathBuf {
    if let Some(cache) = env::var_os("WALPOST_CACHE") {
        PathBuf::from(cache)
    } else if is_root() {
        PathBuf::from("/var/cache/walpost")
    } else if let Some(cache) = env::var_os("XDG_CACHE_HOME") {
        Path::new(&cache).join("walpost")
    } else {
        Path::new(&env::var_os("HOME").expect("HOME is set")).join(".cache/walpost")
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").expect("/proc is mounted").uid() == 0
}

/// PostgreSQL refuses to run as root: it runs as `postgres`, or `nobody` where that user is missing.
pub struct ServerUser {
    /// User and group, when this process is root.
    other: Option<(u32, u32)>,
}

impl ServerUser {
    pub fn find() -> ServerUser {
        let other = is_root().then(|| {
            let known = |name: &&str| Command::new("id").arg(name).output().is_ok_and(|output| output.status.success());
            let name = ["postgres", "nobody"].into_iter().find(known).expect("there is a user named nobody");
            let id = |option| run("id", [option, name]).parse().expect("id prints a number");
            (id("-u"), id("-g"))
        });
        ServerUser { other }
    }

    /// Words before a command line that make it run as this user, with the same process id.
    pub fn become_it(&self) -> Vec<OsString> {
        let Some((user, group)) = self.other else { return Vec::new() };
        ["setpriv", &format!("--reuid={user}"), &format!("--regid={group}"), "--clear-groups", "--"]
            .map(Into::into)
            .into()
    }

    pub fn give(&self, path: &Path) {
        if let Some((user, group)) = self.other {
            chown(path, Some(user), Some(group)).expect("root may change owners");
        }
    }
}
