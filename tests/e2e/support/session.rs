//! A blocking SQL session: tests read as stories when nothing in them awaits.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

/// One connection. Values come back as PostgreSQL prints them.
pub struct Session {
    // Before the runtime: the connection's task ends when the client goes.
    client: Client,
    runtime: Runtime,
}

impl Session {
    pub fn open(config: &Config) -> Result<Session, tokio_postgres::Error> {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
        let client = runtime.block_on(async {
            let mut config = config.clone();
            let (client, connection) = config.connect_timeout(Duration::from_secs(5)).connect(NoTls).await?;
            tokio::spawn(connection);
            Ok::<_, tokio_postgres::Error>(client)
        })?;
        Ok(Session { client, runtime })
    }

    /// Runs statements; an error fails the test with the statement.
    pub fn run(&self, sql: &str) {
        if let Err(error) = self.try_run(sql) {
            panic!("{} in: {}", describe(&error), shortened(sql));
        }
    }

    pub fn try_run(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.runtime.block_on(self.client.batch_execute(sql))
    }

    /// All rows of a query, as text.
    pub fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.try_rows(sql).unwrap_or_else(|error| panic!("{} in: {}", describe(&error), shortened(sql)))
    }

    pub fn try_rows(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, tokio_postgres::Error> {
        let messages = self.runtime.block_on(self.client.simple_query(sql))?;
        let mut rows = Vec::new();
        for message in messages {
            if let SimpleQueryMessage::Row(row) = message {
                rows.push((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect());
            }
        }
        Ok(rows)
    }

    /// The one value of a query that gives one row with one column; NULL is `None`.
    pub fn value(&self, sql: &str) -> Option<String> {
        let mut rows = self.rows(sql);
        assert!(rows.len() == 1 && rows[0].len() == 1, "one value expected of: {}", shortened(sql));
        rows.remove(0).remove(0)
    }

    /// The one value of a query, parsed.
    pub fn get<T: std::str::FromStr>(&self, sql: &str) -> T {
        let value = self.value(sql).unwrap_or_else(|| panic!("NULL from: {}", shortened(sql)));
        value.parse().unwrap_or_else(|_| panic!("{value:?} does not parse, from: {}", shortened(sql)))
    }
}

fn describe(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |db| format!("{} ({})", db.message(), db.code().code()))
}

fn shortened(sql: &str) -> String {
    sql.chars().take(300).collect()
}
