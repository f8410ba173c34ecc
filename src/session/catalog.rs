//! What the catalog says of relations, asked as the log describes them: nothing is stepped past a description.

use std::time::Duration;

use super::job::Job;
use crate::{
    pipeline::{Description, RelationId, Undescribed},
    postgres::{self, attributes, conninfo::ConnInfo, sql},
};

/// How often it is told that an answer is late.
const LATE: Duration = Duration::from_secs(10);

/// The one question that may be open.
#[derive(Debug, Default)]
pub struct Catalog(Job<Result<(RelationId, Description), postgres::Error>>);

impl Catalog {
    pub fn ask(&mut self, server: &ConnInfo, relation: Undescribed) {
        let server = server.clone();
        self.0 = Job::of(async move {
            let answer = async {
                let client = sql::connect(&server).await?;
                Ok((relation.id, attributes::read(&client, &relation).await?))
            };
            let mut answer = std::pin::pin!(answer);
            loop {
                match tokio::time::timeout(LATE, &mut answer).await {
                    Ok(answer) => return answer,
                    Err(_) => tracing::warn!(
                        "the stream waits for what the catalog says of {}, which a transaction that alters the table keeps \
                         from it (select * from pg_locks where not granted)",
                        relation.table
                    ),
                }
            }
        });
    }

    /// Its answer is awaited.
    pub fn is_asked(&self) -> bool {
        self.0.is_under_way()
    }

    /// The answer; never, where nothing was asked. Cancel safe.
    pub async fn ready(&mut self) -> Result<(RelationId, Description), postgres::Error> {
        self.0.ended().await
    }
}
