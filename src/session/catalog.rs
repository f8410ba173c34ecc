//! What the catalog says of relations, asked as the log describes them: nothing is stepped past a description.

use std::{collections::HashSet, time::Duration};

use super::job::Job;
use crate::{
    pipeline::{Description, RelationId, Undescribed},
    postgres::{self, attributes, conninfo::ConnInfo, sql},
};

/// How often it is told that an answer is late.
const LATE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct Catalog {
    /// The one question that may be open.
    question: Job<Result<(RelationId, Description), postgres::Error>>,
    told: HashSet<String>,
}

impl Catalog {
    pub fn ask(&mut self, server: &ConnInfo, relation: Undescribed) {
        let server = server.clone();
        self.question = Job::of(async move {
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
        self.question.is_under_way()
    }

    /// The answer; never, where nothing was asked. Cancel safe.
    pub async fn ready(&mut self) -> Result<(RelationId, Description), postgres::Error> {
        self.question.ended().await
    }

    /// Tells what is worth telling of a relation, once: it is described again whenever anything of it changes.
    pub(super) fn tell(&mut self, warnings: &[String]) {
        for warning in warnings {
            if self.told.insert(warning.clone()) {
                tracing::warn!("{warning}");
            }
        }
    }
}
