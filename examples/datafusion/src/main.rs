//! SQL over the cells of an array, by DataFusion, which reads the columns that a query names and no others:
//! `cargo run --release -- ARRAY "SELECT avg(temperature) FROM cells"`. Dimensions and attributes are
//! columns.

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatchReader;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::prelude::SessionContext;
use std::path::PathBuf;
use std::sync::Arc;
use tiledbfs::{Array, Batches, TimeRange};

/// An array as a table: all of its columns, or those that a query reads.
#[derive(Debug, Clone)]
struct Cells {
    array: PathBuf,
    schema: SchemaRef,
}

impl Cells {
    fn of(array: PathBuf) -> Result<Cells> {
        let batches = Array::open(&array).and_then(|array| Batches::new(array.at(TimeRange::ALL).open()?));
        let schema = batches.map_err(external)?.schema();
        Ok(Cells { array, schema })
    }

    fn batches(&self) -> tiledbfs::Result<Batches> {
        let names = self.schema.fields().iter().map(|field| field.name());
        Batches::new(
            Array::open(&self.array)?
                .at(TimeRange::ALL)
                .fields(names)
                .open()?,
        )
    }
}

fn external(error: tiledbfs::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

#[async_trait]
impl TableProvider for Cells {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut read = self.clone();
        if let Some(columns) = projection {
            read.schema = Arc::new(self.schema.project(columns)?);
        }
        let schema = read.schema.clone();
        let plan = StreamingTableExec::try_new(schema, vec![Arc::new(read)], None, [], false, limit)?;
        Ok(Arc::new(plan))
    }
}

impl PartitionStream for Cells {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let cells = self.clone();
        let mut stream = RecordBatchReceiverStreamBuilder::new(self.schema.clone(), 2);
        let sender = stream.tx();
        // Decoding is no work for the threads of an asynchronous runtime.
        stream.spawn_blocking(move || {
            for batch in cells.batches().map_err(external)? {
                if sender
                    .blocking_send(batch.map_err(DataFusionError::from))
                    .is_err()
                {
                    break;
                }
            }
            Ok(())
        });
        stream.build()
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [array, query] = arguments.as_slice() else {
        return Err(DataFusionError::Execution("usage: sql ARRAY QUERY".to_owned()));
    };
    let session = SessionContext::new();
    session.register_table("cells", Arc::new(Cells::of(array.into())?))?;
    session.sql(query).await?.show().await
}
