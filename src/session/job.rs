//! Work beside the session, which ends with its owner, and a word about what keeps it from being done.

use tokio::task::JoinHandle;

/// A piece of work, or none.
#[derive(Debug)]
pub(super) struct Job<T>(Option<JoinHandle<T>>);

impl<T> Default for Job<T> {
    fn default() -> Job<T> {
        Job(None)
    }
}

impl<T: Send + 'static> Job<T> {
    pub(super) fn of(work: impl Future<Output = T> + Send + 'static) -> Job<T> {
        Job(Some(tokio::spawn(work)))
    }
}

impl<T> Job<T> {
    pub(super) fn is_under_way(&self) -> bool {
        self.0.is_some()
    }

    /// Waits until it has ended; forever, where there is none. Cancel safe.
    pub(super) async fn ended(&mut self) -> T {
        let Some(task) = &mut self.0 else { return std::future::pending().await };
        let done = task.await.expect("work beside the session does not panic");
        self.0 = None;
        done
    }

    /// Gives it up, and waits until it does nothing more.
    pub(super) async fn stop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
            task.await.ok();
        }
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Why work cannot be done, as it was told.
#[derive(Debug, Default)]
pub(super) struct Trouble(Option<String>);

impl Trouble {
    pub(super) fn as_deref(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Tells of it, unless that was the last word.
    pub(super) fn is(&mut self, trouble: String) {
        if self.0.as_ref() != Some(&trouble) {
            tracing::warn!("{trouble}");
        }
        self.0 = Some(trouble);
    }

    /// Says that what was told of is over.
    pub(super) fn is_over(&mut self, relief: &str) {
        if self.0.take().is_some() {
            tracing::info!("{relief}");
        }
    }
}
