//! The application of the demo: it places orders, each with its event in the same transaction.

use std::time::Instant;

use anyhow::Context;
use tokio_postgres::Statement;

use crate::{
    postgres::{
        conninfo::ConnInfo,
        sql::{self, Sql},
    },
    trial::comparison::uuid,
};

/// What the application's own schema has beside the outbox.
pub(super) fn orders_table(schema: &str) -> String {
    format!(
        "CREATE TABLE {schema}.orders (number int PRIMARY KEY, customer text NOT NULL, total numeric(10, 2) NOT NULL, \
         status text NOT NULL DEFAULT 'placed')"
    )
}

/// An event that was committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) id: u128,
    /// Just before COMMIT was sent.
    pub(super) at: Instant,
}

/// One connection of the application.
pub(super) struct Shop {
    sql: Sql,
    order: Statement,
    pay: Statement,
    event: Statement,
}

impl Shop {
    pub(super) async fn open(database: &ConnInfo, schema: &str) -> anyhow::Result<Shop> {
        let sql = sql::connect(database).await?;
        let order = format!(
            "INSERT INTO {schema}.orders (number, customer, total) VALUES \
             ($1, (ARRAY['Ana Pereira', 'Jon Smith', 'Li Wei', 'Olu Ade'])[1 + $1 % 4], ($1::bigint * 737 % 9900 + 100) / 100.0)"
        );
        let pay = format!("UPDATE {schema}.orders SET status = 'paid' WHERE number = $1");
        let event = format!(
            "SELECT {schema}.enqueue('order', 'order-' || number, $2::text, \
                 jsonb_build_object('total', total, 'customer', customer, 'status', status))::text \
             FROM {schema}.orders WHERE number = $1"
        );
        let (order, pay, event) = (sql.prepare(&order).await?, sql.prepare(&pay).await?, sql.prepare(&event).await?);
        Ok(Shop { sql, order, pay, event })
    }

    /// Places an order.
    pub(super) async fn place(&self, number: i32) -> anyhow::Result<Placed> {
        let id = self.change(&self.order, number, "OrderPlaced").await?;
        self.commit(id).await
    }

    /// Marks it as paid, in a transaction of its own.
    pub(super) async fn pay(&self, number: i32) -> anyhow::Result<Placed> {
        let id = self.change(&self.pay, number, "OrderPaid").await?;
        self.commit(id).await
    }

    /// Places an order, and thinks better of it.
    pub(super) async fn place_and_roll_back(&self, number: i32) -> anyhow::Result<()> {
        self.change(&self.order, number, "OrderPlaced").await?;
        self.sql.batch_execute("ROLLBACK").await.context("ROLLBACK failed")
    }

    /// The application's own change and its event, in an open transaction. Gives the event's id.
    async fn change(&self, change: &Statement, number: i32, event_type: &str) -> anyhow::Result<u128> {
        self.sql.batch_execute("BEGIN").await?;
        self.sql.execute(change, &[&number]).await.context("an order cannot be written")?;
        let row =
            self.sql.query_one(&self.event, &[&number, &event_type]).await.context("an event cannot be written")?;
        uuid(row.try_get::<_, &str>(0)?.as_bytes()).context("enqueue gives the event's id")
    }

    async fn commit(&self, id: u128) -> anyhow::Result<Placed> {
        let at = Instant::now();
        self.sql.batch_execute("COMMIT").await.context("COMMIT failed")?;
        Ok(Placed { id, at })
    }
}
