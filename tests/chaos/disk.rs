//! A small file system in memory, for a folder of a server that is to run full.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::process::run;

/// Mounted over a folder, with what was in it; unmounted when it is dropped.
pub struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// The server that uses the folder must be stopped. Fails where this process may not mount.
    pub fn over(folder: &Path, mebibytes: u32) -> Result<Disk, String> {
        let aside = folder.with_extension("aside");
        run("cp", ["-a".into(), folder.to_owned(), aside.clone()]);
        let size = format!("size={mebibytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder).output();
        let refused = match mounted {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if refused.is_none() {
            // Owner and mode of the folder, and all that is in it.
            run("cp", ["-a".into(), aside.join("."), folder.to_owned()]);
        }
        fs::remove_dir_all(&aside).expect("it is ours");
        match refused {
            None => Ok(Disk { folder: folder.to_owned() }),
            Some(why) => Err(why),
        }
    }

    /// Takes all the room that is left.
    pub fn fill(&self) {
        let mut ballast = OpenOptions::new().create(true).append(true).open(self.ballast()).expect("it is ours");
        for size in [1 << 20, 1 << 12] {
            while ballast.write_all(&vec![1; size]).is_ok() {}
        }
    }

    pub fn free(&self) {
        fs::remove_file(self.ballast()).expect("it was filled");
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a server that is ending may still have files open.
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
    }
}
