//! Events that are committed before anything is measured.

use anyhow::Context;

use crate::trial::site::Site;

/// How much, and in which transactions.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub events: u32,
    /// Size of a payload's text.
    pub bytes: u32,
    pub rows_per_transaction: u32,
}

/// Commits the events, in order, from one session.
pub async fn fill(site: &Site, shape: Shape) -> anyhow::Result<()> {
    let Shape { events, bytes, rows_per_transaction } = shape;
    let table = site.table();
    // An order as an application might write it, filled up to the size asked for with text that compresses as text does.
    let fill = format!(
        "DO $$ BEGIN
            FOR low IN 1..{events} BY {rows_per_transaction} LOOP
                INSERT INTO {table} (aggregate_type, aggregate_id, event_type, payload)
                SELECT 'order', 'order-' || g::bigint * 7919 % 1000,
                    (ARRAY['OrderPlaced', 'OrderPaid', 'OrderShipped'])[1 + g % 3],
                    o || jsonb_build_object('note', left(note, greatest({bytes} - length(o::text) - 12, 0)))
                FROM generate_series(low, least(low + {rows_per_transaction} - 1, {events})) g,
                    LATERAL (SELECT jsonb_build_object(
                        'customer', jsonb_build_object('id', g % 5000,
                            'name', (ARRAY['Ana Pereira', 'Jon Smith', 'Li Wei', 'Olu Ade'])[1 + g % 4]),
                        'items', jsonb_build_array(jsonb_build_object('sku', 'SKU-' || g::bigint * 31 % 9000,
                            'quantity', 1 + g % 4, 'price', round(g::bigint * 37 % 10000 / 100.0, 2))),
                        'total', round(g::bigint * 37 % 40000 / 100.0, 2), 'currency', 'EUR')) made (o),
                    LATERAL (SELECT md5(g::text) || md5((g + 1)::text) || repeat('gift wrap, ', 1 + {bytes} / 11)) padding (note)
                ORDER BY g;
                COMMIT;
            END LOOP;
        END $$"
    );
    site.sql().batch_execute("SET synchronous_commit = off").await?;
    site.sql().batch_execute(&fill).await.context("the backlog cannot be written")?;
    Ok(())
}

/// A record as walpost would send it, for a producer that has nothing else to do.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub key: String,
    pub value: String,
    /// In the order of the native format.
    pub headers: [(&'static str, String); 5],
}

/// The first records of the backlog.
pub async fn prepared(site: &Site, most: u32) -> anyhow::Result<Vec<Prepared>> {
    let rows = format!(
        "SELECT aggregate_id, payload::text, id::text, event_type, aggregate_type,
            to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),
            lpad(upper(to_hex(seq)), 16, '0') || '-00000000'
         FROM {} ORDER BY seq LIMIT {most}",
        site.table()
    );
    let rows = site.sql().query(&rows, &[]).await?;
    let record = |row: &tokio_postgres::Row| -> Result<Prepared, tokio_postgres::Error> {
        let header = |name, column| Ok::<_, tokio_postgres::Error>((name, row.try_get::<_, String>(column)?));
        Ok(Prepared {
            key: row.try_get(0)?,
            value: row.try_get(1)?,
            headers: [
                header("id", 2)?,
                header("event_type", 3)?,
                header("aggregate_type", 4)?,
                header("occurred_at", 5)?,
                header("position", 6)?,
            ],
        })
    };
    Ok(rows.iter().map(record).collect::<Result<_, _>>()?)
}
