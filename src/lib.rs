//! tiledbfs shows TileDB arrays as plain files, through FUSE or on the command line, reading the on-disk
//! format itself.
//!
//! # The way of a byte
//!
//! ```text
//! .tdb file ─► storage ─► format ─► filter ─► array ─► view ─► layout ─► export ─► tree ─► fuse  (the kernel)
//!              read a     bytes →   undo one  which    which   parts     files of  what a  └─► cli  (ls, cat, cp, info,
//!              range      structs   filter    tile,    cells   of a      other     path is           without a mount)
//!                                             cache            file      formats
//!                                               └► check ─► cli  (check)
//! ```
//!
//! Modules know each other in the direction of the arrows only: each imports from those to its left, and from
//! the few that everybody uses ([`error`], [`cursor`], [`calendar`], [`names`], [`stats`], [`requester`],
//! [`single_flight`]). The columns of a fragment go from `array` to `layout` directly.
//!
//! | module | knows | must not know |
//! |---|---|---|
//! | [`storage`] | listing a directory, reading byte ranges of a file: of this machine, or in an object store | TileDB |
//! | [`mod@format`] | how *unfiltered* bytes become plain structs: names, datatypes, pipelines, schemas, fragment metadata, commits, conditions, metadata, groups | files, the filters' algorithms, threads, caches, FUSE |
//! | [`filter`] | undoing one filter on one chunk; the pipeline that chains them; chunked and generic tiles | schemas, fragments |
//! | [`mod@array`] | a source opened: its schemas and fragments, what of it is seen at a time, deletes; where a tile lies and how many cells it has; the cache; columns as seekable bytes; the global order of cells | how anything is shown |
//! | [`view`] | an array in a range of time, whole or in part: which cells, in which order | the tree, names of files, FUSE |
//! | [`layout`] | an open file as parts of known length: bytes, cells, text made segment by segment | what the parts mean |
//! | [`export`] | which bytes a view has in the formats of other programs | paths, FUSE |
//! | [`tree`] | the virtual tree: nodes, names, exact sizes, JSON, NumPy headers; times and parts of a domain as users write them | FUSE's types |
//! | [`check`] | what can be compared in an array, and how it is done with all of it | how anything is shown |
//! | [`fuse`] | inodes, replies, errno, kernel options | TileDB |
//! | [`cli`] | arguments, the daemon, signals, logs, messages | formats |
//!
//! # What the middle is made of
//!
//! - An [`array::listing::ArrayListing`] is what a directory holds at one moment. An
//!   [`array::snapshot::Snapshot`] is what of it a reader sees in a range of time ([`array::time`]): a
//!   function of the listing and the range. Only [`array::Array::snapshot`] asks the clock, where a range has
//!   no end. Why a fragment is not seen is an enum, whose text is that of `fragments.json`.
//! - [`array::deletes`] lists the deletes of an array, decodes them, and binds them to a fragment;
//!   [`array::condition`] evaluates them on cells.
//! - [`array::order`] is the global order of cells, as keys that compare as the cells do; the Hilbert curve
//!   is one of its orders.
//! - [`array::cells::Cells`] are the cells of one field in order: how many, and a run of them. A field of a
//!   fragment is one, and so is a field of a view.
//! - A [`view::View`] is a value that is cheap to make: an array, a range of time, a part of the domain. Its
//!   state, a hash of the snapshot, the schema and the part, names what is remembered of it.
//! - A dense view is an overlay of the boxes that fragments cover: a run of cells is cut into boxes, by tiles
//!   and by fragments, and each is copied from the newest fragment that covers it (`src/view/dense`).
//! - A sparse view merges fragments by the keys of their cells into runs: fragment, first cell, count
//!   (`src/view/sparse`). Fragments that do not overlap in the global order are not merged. Checkpoints,
//!   which the view keeps, make any place reachable; a block of runs that the cache has let go of is merged
//!   again.
//! - A [`layout::FileLayout`] is an open file: a list of parts whose lengths are known. To read is to find the
//!   part and to fill the range.
//!
//! # Decisions
//!
//! **The unit of decoding is the chunk.** A tile is a run of independently filtered chunks, 64 KiB each
//! unless the array says otherwise. Their headers give the original and the stored length, so that the chunk
//! which holds a byte is found without decoding its neighbours ([`filter::chunk`]). The lists of tile offsets
//! and sizes in a fragment's metadata are chunked as well and are read in the same way
//! ([`array::tile_list`]): one cell of a fragment of a million tiles costs a handful of chunks.
//!
//! **An object store is one more storage.** Everything above [`storage`] is synchronous and knows paths and
//! byte ranges; requests run on a runtime of their own below it, and whoever asks waits in their own thread,
//! and gives up when a signal waits for them (`src/storage/remote/flight.rs`, [`requester`]). No question about a name,
//! a length or a time is a request: they are answered from listings, which hold for a while and are made when
//! somebody looks (`src/storage/remote/listing_cache.rs`). A file is one state of an object, by its ETag; each
//! request for bytes says which (`src/storage/remote/blob.rs`). Reads are free on a disk and cost a round
//! trip here, so layers above say what they are about to read, which a local storage passes over: a tile
//! before its chunk headers are walked ([`array::tile_file`]), the ends of many metadata files
//! ([`array::tail_prefetch`]), directories. Consolidated footers stand in for those of fragments where each of these
//! is a request ([`array::repeated_footers`]), and nowhere else, so that one that is wrong does no harm to
//! who can do without. What is fetched and not yet decoded counts in the one cache's budget.
//!
//! **Sizes are exact and come from metadata where they can.** `stat` of what a fragment stores decodes no
//! data tile, nor does that of a dense column of fixed-size cells, or of a sparse one whose fragments need no
//! merge. Otherwise the coordinates, times, condition fields or offsets that decide it are read, once a state
//! of the array; other values never.
//!
//! **Nothing multiplies by itself.** `at/` and `subarray/` are looked up by name and not listed, so that
//! nothing that walks a tree walks through every past state. A lookup makes what it names, and no sibling.
//!
//! **Immutability is the cache contract.** A committed fragment never changes, so its bytes are cached
//! without expiry, here and by the kernel. Only the listing of an array can change; it alone is looked at
//! again ([`array::listing`]). Who breaks the contract and writes to a file of a fragment does not get its
//! states mixed: chunks and pages belong to one state of one file, and what has it open meanwhile fails.
//!
//! **What is open is of one state.** A view is made of one listing, and what is open keeps it. Where files
//! that a listing names are gone, the directory is listed again; no view is made without a fragment that
//! should be in it.
//!
//! **What is remembered is little.** The kernel remembers hundreds of thousands of names, and so does the
//! file system: some 200 bytes each. Nodes, arrays, views and the metadata of fragments are held for what was
//! used last, and found again by their path (`src/fuse/inodes.rs`, [`array::engine`]).
//!
//! **One budget.** Decoded chunks, chunk indexes and blocks of merged runs live in one LRU with a bound in
//! bytes, which what is being decoded counts against; a chunk that several readers want is decoded once
//! ([`array::cache`]). What sequential readers pass through takes up a small share of it only: the kernel
//! keeps those pages, and memory that is used again and again costs no page faults. Where there is no filter
//! nothing is cached: bytes go from the file straight into the reply.
//!
//! **What was measured is remembered**, by document and state, in the same cache: the length of a document of
//! an array that does not change is found once ([`array::engine::Engine::recall`]), although nodes come and
//! go.
//!
//! **A file that changes has an inode for each of its states.** Linux keeps length and pages by inode and
//! does not tell which descriptor a `fstat` is of. So what is open keeps its length, and who opens what has
//! changed meanwhile is sent to look it up again (`src/fuse/inodes.rs`).
//!
//! **Reading ahead is the kernel's.** It knows who reads in sequence, and each of its requests is decoded by
//! a thread of its own; its window grows with the number of threads. They are scheduled so that they do not
//! push the reader aside for whom they work (`src/fuse/scheduling.rs`). What a view has to read once as a
//! whole is shared with helping threads, at most one a processor in the whole process
//! (`src/view/parallel.rs`).
//!
//! **Work ends when nobody waits for it.** The kernel lets a process that was killed wait for its answer, and
//! tells us nothing. So who asks is remembered, and what takes long looks now and then whether all of them
//! have been killed ([`array::work`]).
//!
//! **Large documents are made piece by piece.** What grows with the data (`tiles.json`, `rtree.json`,
//! metadata, enumerations, consolidated fragment metadata) is cut into segments ([`layout::segments`]). One
//! pass tells how long each is; a read renders those that it covers, and their text is in the cache like any
//! chunk. What they are made of stays as it is stored and is read by ranges ([`format::body`]): an R-tree is
//! where its boxes lie ([`format::fragment::boxes`]), a metadata value where its bytes are. Documents that
//! change with the array and are small are held while they are open, and count against the cache's bound
//! ([`array::pinned`]).
//!
//! **What must be in memory whole has a limit.** More is refused with `LimitExceeded`: a schema above 4 MiB,
//! a delete or update condition above 2 MiB, a footer or another generic tile above 16 MiB, metadata of a
//! fragment of versions 1 and 2 above 64 MiB, the members of a group or the keys of metadata above 32 MiB in
//! memory, a value in a list above 8 MiB, a tile of more than 2^20 chunks, a document of more than 4 GiB, and
//! a chunk that takes more to decode than the cache and 32 MiB.
//!
//! **Files are read with `pread`, not mapped.** A mapped file that somebody truncates is a SIGBUS; a short
//! read is an error like any other. It costs one copy of the *stored* bytes, which decompression dwarfs, and
//! keeps the crate free of `unsafe` where it meets untrusted files.
//!
//! **Untrusted bytes go through one cursor** ([`cursor::Cursor`]), which has no method that can panic and
//! names the field and the byte in every error. Counts and lengths are checked before they are used. There is
//! one error type ([`Error`]), whose kind decides the errno.
//!
//! **A panic does not take the mount down.** Every FUSE operation is guarded and answers EIO ([`fuse`]).
//!
//! **What is decoded is what was written.** Libraries below format 20 told every filter of a pipeline the
//! field's own datatype, later ones the type that the filter before it put out. The version word of the
//! fragment's own metadata file tells which ([`array::field::Writer`]), so that data reads back as it was
//! written also where a newer library misreads it.
#![warn(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod array;
pub mod calendar;
pub mod check;
#[cfg(feature = "mount")]
pub mod cli;
pub mod cursor;
pub mod error;
pub mod export;
pub mod filter;
pub mod format;
#[cfg(feature = "mount")]
pub mod fuse;
pub mod layout;
pub mod names;
pub mod requester;
pub mod single_flight;
pub mod stats;
pub mod storage;
pub mod tree;
pub mod view;

pub use error::{Error, ErrorKind, Result};
