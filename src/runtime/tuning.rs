//! The sizes at which readers of large arrays cut their work.

/// The sizes at which readers cut their work into parts, for speed and to bound memory. They change no byte
/// of what is read. An engine has one; tests also have `Tuning::SMALL`.
#[derive(Debug)]
pub struct Tuning {
    /// Longer cells, in bytes, are read only as far as wanted.
    pub long_cell_bytes: u64,

    /// The least number of candidates in a window of a member of a merge, whatever the memory.
    pub min_window_candidates: u64,
    /// The greatest number of candidates in a window. Tiles of sparse fragments have 10,000 cells by default.
    pub max_window_candidates: u64,
    /// The mean bytes of the strings of a candidate, above which a window has fewer candidates.
    pub candidate_string_bytes: u64,
    /// Approximate candidates of a batch of a merge. They and a copy fit in a processor's second-level cache.
    pub batch_candidates: usize,
    /// The least number of candidates of each member in a batch, since each batch looks at all members.
    pub batch_candidates_per_member: usize,
    /// The least number of cells of the view between two checkpoints of a merge.
    pub block_cells: u64,
    /// The same per member: a checkpoint holds a rank for each. It limits checkpoints to one 64th of the
    /// bytes of the coordinates between them.
    pub block_cells_per_member: u64,
    /// A merge of no more candidates is not worth several threads.
    pub parallel_candidates: u64,
    /// The least number of steps between two checkpoints of a block.
    pub stride_steps: usize,
    /// The same per member: a checkpoint holds a rank for each.
    pub stride_steps_per_member: usize,
    /// Steps in a piece of a block.
    pub piece_steps: usize,
    /// Segments of var-sized cells with at most this many bytes are read as a whole.
    pub wasted_bytes: u64,
    /// With no more fragments than this, opening them is cheaper than reading their outlines.
    pub opened_fragments: usize,

    /// Cells of a tile of a sparse fragment in a dense array whose coordinates are read at once.
    pub point_cells: u64,

    /// The cells of fragments with no more than this are compared before any is read, to see whether they are
    /// in global order.
    pub small_fragment_cells: u64,
    /// Candidates of a step of that comparison. They are compared with each other and the first candidate of
    /// the next step.
    pub order_step_candidates: u64,
    /// With no more steps than this, all steps are compared.
    pub all_order_steps: u64,
    /// With more steps, this many are compared.
    pub sampled_order_steps: u64,

    /// A Parquet table of more rows than this may have row groups of fewer.
    pub min_group_rows: u64,
    /// The most rows of a row group.
    pub max_group_rows: u64,
    /// The most bytes and the most entries of a page of more than one row.
    pub page_bytes: u64,
    /// Entries per entry of the index of a page; rows for LISTs of any length and for text.
    pub index_entries: u64,
    /// The most values of a page that are read in one step.
    pub page_values: u64,
    /// The most bytes of text of a page that are read in one step.
    pub page_text_bytes: u64,
    /// Bytes that are made at once of a table for who goes through it.
    pub table_window_bytes: u64,

    /// The most cells of a piece of a sparse matrix. Coordinates of so many are a chunk mostly, which is
    /// shared then.
    pub matrix_piece_cells: u64,
}

impl Tuning {
    /// Of every program and library.
    pub const PRODUCTION: Tuning = Tuning {
        long_cell_bytes: 64 << 10,
        min_window_candidates: 32,
        max_window_candidates: 10_000,
        candidate_string_bytes: 64,
        batch_candidates: 8192,
        batch_candidates_per_member: 16,
        block_cells: 1 << 16,
        block_cells_per_member: 64,
        parallel_candidates: 1 << 16,
        stride_steps: 2048,
        stride_steps_per_member: 64,
        piece_steps: 16_384,
        wasted_bytes: 256 << 10,
        opened_fragments: 64,
        point_cells: 1 << 16,
        small_fragment_cells: 1 << 14,
        order_step_candidates: 8192,
        all_order_steps: 512,
        sampled_order_steps: 32,
        min_group_rows: 1 << 16,
        max_group_rows: 1 << 20,
        page_bytes: 1 << 30,
        index_entries: 4096,
        page_values: 1 << 16,
        page_text_bytes: 1 << 20,
        table_window_bytes: 512 << 10,
        matrix_piece_cells: 1 << 13,
    };

    /// For tests: with few cells it reaches the limits that large arrays reach.
    #[cfg(test)]
    pub const SMALL: Tuning = Tuning {
        long_cell_bytes: 7,
        min_window_candidates: 3,
        max_window_candidates: 11,
        candidate_string_bytes: 4,
        batch_candidates: 16,
        batch_candidates_per_member: 1,
        block_cells: 8,
        block_cells_per_member: 1,
        parallel_candidates: 32,
        stride_steps: 4,
        stride_steps_per_member: 1,
        piece_steps: 4,
        wasted_bytes: 16,
        opened_fragments: 1,
        point_cells: 3,
        small_fragment_cells: 16,
        order_step_candidates: 16,
        all_order_steps: 64,
        sampled_order_steps: 8,
        min_group_rows: 40,
        max_group_rows: 40,
        page_bytes: 1 << 14,
        index_entries: 16,
        page_values: 100,
        page_text_bytes: 100,
        table_window_bytes: 1 << 10,
        matrix_piece_cells: 5,
    };
}
