//! What the catalog says of relations, asked as the log describes them: nothing is stepped past a description.

use super::job::Job;
use crate::{
    pipeline::{Description, RelationId, Undescribed},
    postgres::{self, attributes, conninfo::ConnInfo, sql},
};

/// The one question that may be open.
#[derive(Debug, Default)]
pub struct Catalog(Job<Result<(RelationId, Description), postgres::Error>>);

impl Catalog {
    pub fn ask(&mut self, server: &ConnInfo, relation: Undescribed) {
        let server = server.clone();
        self.0 = Job::of(async move {
            let client = sql::connect(&server).await?;
            Ok((relation.id, attributes::read(&client, &relation).await?))
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
