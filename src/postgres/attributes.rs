//! What the catalog knows of a relation's columns and the log does not tell: which may be NULL, their defaults, and what
//! their types are made from.

use std::collections::HashMap;

use tokio_postgres::Client;

use super::Error;
use crate::{
    debezium::columns::{Attribute, Shape, Type},
    pipeline::{Description, Undescribed, UndescribedColumn},
};

/// Reads the catalog as it is now. A column that is gone by now may be NULL and has no default.
pub async fn read(client: &Client, relation: &Undescribed) -> Result<Description, Error> {
    // Defaults are printed as the session prints their values.
    client.batch_execute("set datestyle = 'ISO, MDY'; set intervalstyle = 'postgres'").await?;
    let known = columns(client, relation.id.0).await?;
    let oids: Vec<u32> = relation.columns.iter().map(|column| column.type_oid.0).collect();
    let types = types(client, &oids).await?;
    let attribute = |column: &UndescribedColumn| {
        let (not_null, default) = known.get(&column.name).cloned().unwrap_or_default();
        let kind = kind(&types, column.type_oid.0);
        Attribute { name: column.name.clone(), kind, typmod: column.typmod, not_null, default }
    };
    let columns = relation.columns.iter().map(attribute).collect();
    Ok(Description { columns, key: key(client, relation.id.0).await? })
}

/// Columns of the primary key, else of the unique index that was made first and is over columns alone.
async fn key(client: &Client, relation: u32) -> Result<Vec<String>, Error> {
    let row = client
        .query_opt(
            "select array(select a.attname::text from unnest(indkey::int2[]) with ordinality as k (attnum, place)
                          join pg_attribute a on a.attrelid = indrelid and a.attnum = k.attnum
                          where place <= indnkeyatts order by place)
             from pg_index where indrelid = $1 and indisunique and indisvalid and indpred is null and indexprs is null
             order by not indisprimary, indexrelid limit 1",
            &[&relation],
        )
        .await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.unwrap_or_default())
}

/// Whether each column is NOT NULL, and its default.
async fn columns(client: &Client, relation: u32) -> Result<HashMap<String, (bool, Option<String>)>, Error> {
    let rows = client
        .query(
            "select attname::text, attnotnull, case attgenerated when '' then pg_get_expr(adbin, adrelid) end
             from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum
             where attrelid = $1 and attnum > 0 and not attisdropped",
            &[&relation],
        )
        .await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?)))).collect()
}

/// A row of `pg_type`, and what it refers to by oid.
struct Entry {
    name: String,
    /// Of a domain; 0: it is none.
    base: u32,
    base_typmod: i32,
    /// Of an array; 0: it is none.
    element: u32,
    /// Of an enum, in order.
    labels: Option<Vec<String>>,
}

/// These types, and all that they are made from.
async fn types(client: &Client, oids: &[u32]) -> Result<HashMap<u32, Entry>, Error> {
    let rows = client
        .query(
            "with recursive needed (oid) as (
                 select unnest($1::oid[])
                 union
                 select part.oid from needed join pg_type t on t.oid = needed.oid,
                     unnest(array[t.typbasetype, case t.typcategory when 'A' then t.typelem end]) as part (oid)
                 where part.oid <> 0
             )
             select t.oid, typname::text, typbasetype, typtypmod, case typcategory when 'A' then typelem else 0 end,
                    case typtype when 'e' then
                        array(select enumlabel::text from pg_enum where enumtypid = t.oid order by enumsortorder) end
             from needed join pg_type t using (oid)",
            &[&oids],
        )
        .await?;
    rows.iter()
        .map(|row| {
            let entry = Entry {
                name: row.try_get(1)?,
                base: row.try_get(2)?,
                base_typmod: row.try_get(3)?,
                element: row.try_get(4)?,
                labels: row.try_get(5)?,
            };
            Ok((row.try_get(0)?, entry))
        })
        .collect()
}

/// A type that was dropped has no name.
fn kind(types: &HashMap<u32, Entry>, oid: u32) -> Type {
    let Some(entry) = types.get(&oid) else { return Type { oid, name: String::new(), shape: Shape::Plain } };
    let shape = match entry {
        Entry { labels: Some(labels), .. } => Shape::Enum(labels.clone()),
        Entry { base, base_typmod, .. } if *base != 0 => Shape::Domain(Box::new(kind(types, *base)), *base_typmod),
        Entry { element, .. } if *element != 0 => Shape::Array(Box::new(kind(types, *element))),
        _ => Shape::Plain,
    };
    Type { oid, name: entry.name.clone(), shape }
}
