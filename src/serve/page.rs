//! Directories as pages for people.
//!
//! A page needs nothing but itself, and its script adds only comfort. What it shows of an array is made
//! within a second, or left out with a note. Its links are those of the entries, relative, and of the
//! directories above, absolute: programs that take every link of a page for a file find the entries and no
//! more. Sorting, paging and choosing are buttons of forms for the same reason, and colons in text are
//! written as `&#58;`, since some programs look for URLs there.

use super::Pieces;
use super::entry::{Asked, Entry, child};
use super::headers;
use super::path::{self, UrlPath};
use crate::error::{Error, Result};
use crate::export::picture::Picture;
use crate::export::{encoded_names, preview};
use crate::printable;
use crate::query::View;
use crate::runtime::parallel;
use crate::runtime::requester;
use crate::runtime::{Permits, lock};
use crate::tree::{Directory, DirectoryKind, ErrorLog, Node, NodeType, Viewed, follow};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// What a page is answered with.
pub enum Page {
    /// 200 `text/html; charset=utf-8`, without an entity tag.
    Html {
        /// The Content-Security-Policy.
        policy: &'static str,
        /// The document.
        pieces: Pieces,
    },
    /// 200 `image/png`.
    Png(Vec<u8>),
    /// 303 to this absolute path.
    SeeOther(String),
    /// 404, with this line.
    NotFound(String),
}

/// The style sheet.
const STYLE: &str = include_str!("page.css");

/// The script.
const SCRIPT: &str = include_str!("page.js");

/// Nothing but the page's own style and script, its picture, and questions for lengths.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

/// The most entries of a page.
const MAX_ENTRIES: u64 = 10_000;

/// The most entries that are sorted; more keep the order of the listing. Each takes memory.
const MAX_SORTED: u64 = 1 << 20;

/// Entries that are looked up at a time.
const BATCH: u64 = 128;

/// How long a page looks for lengths and times, and for what it shows of an array.
const PATIENCE: Duration = Duration::from_secs(1);

/// The most threads that find out what pages show. Beyond them, pages show less.
const MAX_WORKING: usize = 16;

/// Rows, columns and fields that a page shows.
const ROWS: u64 = 20;
const COLUMNS: usize = 64;
const FIELDS: usize = 1000;

/// The most times that are suggested.
const TIMES: usize = 100;

/// The answer to GET of a directory, with or without parameters.
///
/// # Errors
///
/// If the picture cannot be read.
pub fn answer(asked: Asked) -> Result<Page> {
    let viewed = asked.directory.viewed();
    if let Some(name) = asked.parameter("picture") {
        return png(&asked, viewed, name);
    }
    if asked.parameter("at").is_some() || asked.parameter("box").is_some() {
        return Ok(match viewed {
            Some(viewed) => Page::SeeOther(chosen(&asked, &viewed)),
            None => Page::NotFound("not an array".to_owned()),
        });
    }
    Ok(Page::Html {
        policy: &POLICY,
        pieces: Box::new(Document::new(asked, viewed)),
    })
}

/// The picture of the attribute called `name`.
fn png(asked: &Asked, viewed: Option<Viewed>, name: &str) -> Result<Page> {
    let absent = |reason: &str| Ok(Page::NotFound(format!("no picture: {reason}")));
    let Some(viewed) = viewed else {
        return absent("not an array");
    };
    let view = viewed.view()?;
    let names = encoded_names(&view);
    let Some(field) = names
        .iter()
        .position(|known| headers::spelled(known.as_bytes()) == name)
    else {
        return absent("there is no such attribute");
    };
    let Ok(band) = asked.parameter("band").map_or(Ok(0), str::parse::<u64>) else {
        return absent("the band is not a number");
    };
    match Picture::of(&view, field).and_then(|picture| picture.png(band)) {
        Ok(png) => Ok(Page::Png(png)),
        Err(error) if error.is_of_a_name() => absent(error.message()),
        Err(error) => Err(error),
    }
}

/// The path of the view or the array at the time and of the part that the query asks for. What it does not
/// mention stays; an empty value means now, or all.
fn chosen(asked: &Asked, viewed: &Viewed) -> String {
    let names = &asked.path.names;
    let (array, below) = names.split_at(names.len() - viewed.levels());
    let choice = |parameter: &str, here: Option<&OsString>| match asked.parameter(parameter) {
        None => here.cloned(),
        Some("" | "." | "..") => None,
        Some(value) => Some(value.into()),
    };
    let at = choice("at", viewed.at.then(|| &below[1]));
    let part = choice("box", viewed.part.then(|| &below[below.len() - 1]));
    let mut names = array.to_vec();
    names.extend(at.into_iter().flat_map(|at| ["at".into(), at]));
    if viewed.data || part.is_some() {
        names.push("data".into());
    }
    names.extend(part.into_iter().flat_map(|part| ["subarray".into(), part]));
    asked.prefix.clone() + &UrlPath { names, slash: true }.encode(true)
}

/// Text for HTML, of elements and of attributes in quotes.
struct Html<T>(T);

impl<T: AsRef<str>> Display for Html<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.as_ref().chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                ':' => f.write_str("&#58;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A name for HTML.
fn shown(name: &OsStr) -> Html<String> {
    Html(printable::escape(name.as_encoded_bytes()))
}

/// By what entries are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Name,
    Size,
    Time,
}

/// The order of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Order {
    key: Key,
    descending: bool,
}

impl Order {
    /// The order that `sort` in a query asks for; None for that of the listing.
    fn parse(sort: Option<&str>) -> Option<Order> {
        let sort = sort?;
        let (descending, key) = match sort.strip_prefix('-') {
            Some(key) => (true, key),
            None => (false, sort),
        };
        let key = match key {
            "name" => Key::Name,
            "size" => Key::Size,
            "time" => Key::Time,
            _ => return None,
        };
        Some(Order { key, descending })
    }
}

/// An entry of a directory, as far as it was looked up.
struct Row {
    name: OsString,
    is_directory: bool,
    size: Size,
    /// Milliseconds since the Unix epoch.
    mtime: Option<u64>,
}

enum Size {
    /// A directory has none.
    None,
    Bytes(u64),
    /// It is not in metadata, or was not looked up.
    Unknown,
    Failed,
}

/// A page, piece by piece.
struct Document {
    asked: Asked,
    order: Option<Order>,
    /// The indexes of the entries in this order; None for that of the listing.
    sorted: Option<Vec<u64>>,
    /// The entries that are still to come.
    entries: std::ops::Range<u64>,
    /// When it stops to look up lengths and times.
    until: Instant,
    /// What is left of the page.
    next: Part,
}

enum Part {
    /// All up to the entries.
    Head(Option<Viewed>),
    /// The entries, and what comes behind them.
    Entries(String),
    Nothing,
}

impl Iterator for Document {
    type Item = Result<::bytes::Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let piece = match std::mem::replace(&mut self.next, Part::Nothing) {
            Part::Head(viewed) => match self.head(viewed) {
                Ok((head, tail)) => {
                    self.next = Part::Entries(tail);
                    head
                }
                Err(error) => return Some(Err(error)),
            },
            Part::Entries(tail) if self.entries.is_empty() => tail,
            Part::Entries(tail) => {
                self.next = Part::Entries(tail);
                self.rows()
            }
            Part::Nothing => return None,
        };
        Some(Ok(piece.into()))
    }
}

/// Whether the entries of a directory may be sorted.
fn is_sortable(asked: &Asked) -> bool {
    asked.listing.len() <= MAX_SORTED
}

impl Document {
    fn new(asked: Asked, viewed: Option<Viewed>) -> Document {
        let count = asked.listing.len();
        let from = asked.parameter("from").and_then(|from| from.parse().ok());
        let from = from.filter(|from| *from < count).unwrap_or(0);
        let order = Order::parse(asked.parameter("sort"));
        Document {
            order: order.filter(|_| is_sortable(&asked)),
            sorted: None,
            // `from` is the client's, and a listing may have nearly 2^64 entries.
            entries: from..count.min(from.saturating_add(MAX_ENTRIES)),
            until: Instant::now() + PATIENCE,
            next: Part::Head(viewed),
            asked,
        }
    }

    /// The entry at `index` of the listing; None if it is gone, or not shown. Looks it up until `until`.
    fn look_up(&self, index: u64, until: Option<Instant>) -> Option<Row> {
        let (name, kind) = self.asked.listing.get(index)?;
        let mut row = Row {
            name: name.clone().into_owned(),
            is_directory: kind == NodeType::Directory,
            size: if kind == NodeType::Directory {
                Size::None
            } else {
                Size::Unknown
            },
            mtime: None,
        };
        if until.is_some_and(|until| Instant::now() > until) {
            return Some(row);
        }
        let node = follow(&*self.asked.directory, &name).transpose()?;
        let entry = node.map(|node| Entry {
            path: child(&self.asked.path, row.name.clone()),
            node,
        });
        match &entry {
            Ok(entry) => {
                row.is_directory = entry.is_directory();
                row.mtime = Some(entry.mtime());
                if let Node::File(file) = &entry.node {
                    row.size = match file.known_len() {
                        Ok(Some(length)) => Size::Bytes(length),
                        Ok(None) => Size::Unknown,
                        Err(_) => Size::Failed,
                    };
                }
            }
            Err(error) => {
                log::debug!("{}: {error}", child(&self.asked.path, row.name.clone()).display());
                row.size = Size::Failed;
            }
        }
        Some(row)
    }

    /// The indexes of all entries in an order. Entries without a size or a time come last, and those that are
    /// equal in the order of the listing.
    fn sort(&self, order: Order) -> Result<Vec<u64>> {
        let count = self.asked.listing.len();
        let mut all: Vec<u64> = (0..count).collect();
        match order.key {
            Key::Name => {
                all.sort_by_cached_key(|index| {
                    self.asked.listing.get(*index).map(|(name, _)| name.into_owned())
                });
                if order.descending {
                    all.reverse();
                }
            }
            Key::Size | Key::Time => {
                let key = |index| {
                    let row = self.look_up(index, None)?;
                    match (order.key, row.size) {
                        (Key::Time, _) => row.mtime,
                        (_, Size::Bytes(length)) => Some(length),
                        _ => None,
                    }
                };
                let keys =
                    parallel::each(count, |index| match requester::is_gone(&requester::requester()) {
                        true => Err(requester::abandoned()),
                        false => Ok(key(index)),
                    })?;
                all.sort_by_key(|index| match keys[*index as usize] {
                    None => (true, 0),
                    Some(key) if order.descending => (false, u64::MAX - key),
                    Some(key) => (false, key),
                });
            }
        }
        Ok(all)
    }

    /// The next rows of the table of entries.
    fn rows(&mut self) -> String {
        let batch = self.entries.start..self.entries.end.min(self.entries.start.saturating_add(BATCH));
        self.entries.start = batch.end;
        let index = |at: u64| self.sorted.as_ref().map_or(at, |sorted| sorted[at as usize]);
        let count = batch.end - batch.start;
        let found = parallel::each(count, |number| {
            Ok::<_, Error>(self.look_up(index(batch.start + number), Some(self.until)))
        });
        let mut out = String::new();
        // No lookup fails: what cannot be read is shown as that.
        for row in found.into_iter().flatten().flatten() {
            row.write(&mut out);
        }
        out
    }

    /// What comes before the entries, and what comes behind them.
    fn head(&mut self, viewed: Option<Viewed>) -> Result<(String, String)> {
        if let Some(order) = self.order {
            self.sorted = Some(self.sort(order)?);
        }
        let asked = &self.asked;
        let host = host(&asked.origin);
        let title = match asked.path.names.last() {
            Some(name) => shown(name).to_string(),
            None => Html(host).to_string(),
        };
        let mut out = String::new();
        let _ = writeln!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>"
        );
        breadcrumb(asked, host, &mut out);
        let _ = writeln!(out, "<h1>{title}</h1>");
        let known = viewed.as_ref().map(|viewed| Overview::of(viewed, asked));
        let count = asked.listing.len();
        let what = match (asked.kind(), &known) {
            (DirectoryKind::Array | DirectoryKind::View, Some(known)) => known.summary(asked.kind()),
            (DirectoryKind::Group, _) => "Group".to_owned(),
            _ => format!("{count} {}", if count == 1 { "entry" } else { "entries" }),
        };
        let _ = writeln!(out, "<p class=\"muted\">{}</p>\n</header>\n<main>", Html(what));
        if let (Some(viewed), Some(known)) = (&viewed, &known) {
            choices(asked, viewed, &mut out);
            known.sections(asked, viewed, &mut out);
        }
        self.table(&mut out);
        let mut tail = "</tbody>\n</table>\n</div>\n".to_owned();
        self.paging(&mut tail);
        commands(asked, known.as_ref(), viewed.as_ref(), &mut tail);
        let _ = write!(tail, "</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n");
        Ok((out, tail))
    }

    /// The head of the table of entries.
    fn table(&self, out: &mut String) {
        out.push_str(
            "<h2 id=\"files\">Files</h2>\n<form id=\"sorting\" method=\"get\"></form>\n\
             <div class=\"scroll\">\n<table id=\"entries\" aria-labelledby=\"files\">\n<thead><tr>",
        );
        for (key, value, label, class) in [
            (Key::Name, "name", "Name", ""),
            (Key::Size, "size", "Size", " class=\"n\""),
            (Key::Time, "time", "Modified (UTC)", ""),
        ] {
            let (state, sign) = match self.order.filter(|order| order.key == key) {
                None => ("none", ""),
                Some(order) if order.descending => ("descending", ""),
                Some(_) => ("ascending", "-"),
            };
            let _ = match is_sortable(&self.asked) {
                true => write!(
                    out,
                    "<th scope=\"col\" aria-sort=\"{state}\"{class}>\
                     <button name=\"sort\" value=\"{sign}{value}\" form=\"sorting\">{label}</button></th>"
                ),
                false => write!(out, "<th scope=\"col\"{class}>{label}</th>"),
            };
        }
        out.push_str("</tr></thead>\n<tbody>\n");
    }

    /// The buttons that lead to other entries, if there are more than these.
    fn paging(&self, out: &mut String) {
        let (count, end) = (self.asked.listing.len(), self.entries.end);
        if count <= MAX_ENTRIES {
            return;
        }
        let from = self.entries.start;
        out.push_str("<form method=\"get\">");
        if let Some(sort) = self.asked.parameter("sort") {
            let _ = write!(
                out,
                "<input type=\"hidden\" name=\"sort\" value=\"{}\">",
                Html(sort)
            );
        }
        let _ = write!(out, "<span>Entries {} to {end} of {count}</span>", from + 1);
        let mut button = |from: u64, label: &str| {
            let _ = write!(out, "<button name=\"from\" value=\"{from}\">{label}</button>");
        };
        if from > 0 {
            button(from.saturating_sub(MAX_ENTRIES), "Previous");
        }
        if end < count {
            button(end, "Next");
        }
        out.push_str("</form>\n");
    }
}

impl Row {
    fn write(&self, out: &mut String) {
        let (name, slash) = (shown(&self.name), if self.is_directory { "/" } else { "" });
        let href = path::encode(&self.name);
        let _ = write!(
            out,
            "<tr><th scope=\"row\"><a href=\"{href}{slash}\">{name}{slash}</a></th>"
        );
        let _ = match self.size {
            Size::None => write!(out, "<td class=\"n\">\u{2013}</td>"),
            Size::Bytes(length) => write!(out, "<td class=\"n\">{length}</td>"),
            Size::Unknown => write!(out, "<td class=\"n unknown\">?</td>"),
            Size::Failed => write!(out, "<td class=\"n\">cannot be read</td>"),
        };
        let _ = match self.mtime.map(crate::calendar::timestamp) {
            // Later than 9999, it is a number.
            Some(time) if time.ends_with('Z') => {
                let (day, of_day) = (&time[..10], &time[11..19]);
                write!(out, "<td><time datetime=\"{time}\">{day} {of_day}</time></td>")
            }
            Some(number) => write!(out, "<td>{number}</td>"),
            None => write!(out, "<td>\u{2013}</td>"),
        };
        out.push_str("</tr>\n");
    }
}

/// The host of an origin, for people; `/` if it is none that may be shown in a command.
fn host(origin: &str) -> &str {
    let host = origin.split_once("://").map(|(_, host)| host);
    let is_plain = |host: &&str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        !host.is_empty() && host.bytes().all(plain)
    };
    host.filter(is_plain).unwrap_or("/")
}

/// The directories above, and this one.
fn breadcrumb(asked: &Asked, host: &str, out: &mut String) {
    let Some((last, above)) = asked.path.names.split_last() else {
        let _ = writeln!(
            out,
            "<nav aria-label=\"Breadcrumb\"><ol><li aria-current=\"page\">{}</li></ol></nav>",
            Html(host)
        );
        return;
    };
    // Programs that look for links take a lone slash for an entry.
    let mut href = asked.prefix.clone() + "/";
    let _ = write!(
        out,
        "<nav aria-label=\"Breadcrumb\"><ol><li><a href=\"{href}#\">{}</a></li>",
        Html(host)
    );
    for name in above {
        href.push_str(&path::encode(name));
        href.push('/');
        let _ = write!(out, "<li><a href=\"{href}\">{}</a></li>", shown(name));
    }
    let _ = writeln!(out, "<li aria-current=\"page\">{}</li></ol></nav>", shown(last));
}

/// The forms that choose a time and a part.
fn choices(asked: &Asked, viewed: &Viewed, out: &mut String) {
    let below = &asked.path.names[asked.path.names.len() - viewed.levels()..];
    out.push_str("<div class=\"choose\">\n");
    if viewed.has_times {
        let now = Html(match viewed.at {
            true => headers::spelled(below[1].as_encoded_bytes()),
            false => String::new(),
        });
        let _ = write!(
            out,
            "<form method=\"get\"><label for=\"at\">As it was at</label><input id=\"at\" name=\"at\" value=\"{now}\" \
             list=\"times\" placeholder=\"2025-02-04T12&#58;00Z\" autocomplete=\"off\"><button>Show</button>\
             <datalist id=\"times\">"
        );
        for time in viewed.times(TIMES) {
            let _ = write!(out, "<option value=\"{}\"></option>", Html(time));
        }
        out.push_str("</datalist></form>\n");
    }
    let part = Html(match viewed.part {
        true => headers::spelled(below[below.len() - 1].as_encoded_bytes()),
        false => String::new(),
    });
    let dimensions = viewed.view().map(|view| preview::fields(&view, FIELDS));
    let dimensions = dimensions
        .into_iter()
        .flatten()
        .filter(|field| field.is_dimension);
    let names: Vec<String> = dimensions.map(|field| field.name).collect();
    // Without a view nobody knows what there are ranges of.
    if !names.is_empty() {
        let example: Vec<&str> = names.iter().map(|_| "1..5").collect();
        let _ = writeln!(
            out,
            "<form method=\"get\"><label for=\"box\">Part: a range of {}</label><input id=\"box\" name=\"box\" \
             value=\"{part}\" placeholder=\"{}\" autocomplete=\"off\"><button>Show</button></form>",
            Html(names.join(", ")),
            example.join(",")
        );
    }
    out.push_str("</div>\n");
}

/// What is found out of a view.
#[derive(Default)]
struct Found {
    /// Whether something could not be read.
    failed: bool,
    shape: Option<Vec<u64>>,
    /// The names of the attributes that have pictures.
    pictured: Vec<String>,
    /// The picture that is shown, and its place among these; or why there is none.
    picture: Option<std::result::Result<(usize, Picture), String>>,
    rows: Option<preview::Rows>,
    /// The names that the view lists.
    files: Vec<OsString>,
}

/// What a page shows of a view.
struct Overview {
    view: Option<Arc<View>>,
    found: Found,
    /// Whether more was to be found out.
    late: bool,
}

/// Threads that find out what pages show, waited for or not.
static WORKING: Permits = Permits::new();

impl Overview {
    /// What is found out within a second.
    fn of(viewed: &Viewed, asked: &Asked) -> Overview {
        let found: Arc<Mutex<Found>> = Arc::default();
        let view = viewed.view();
        if let Err(error) = &view {
            asked.errors.record(&asked.path.display(), error);
        }
        let view = view.ok();
        let mut late = false;
        if let (Some(view), Some(working)) = (view.clone(), WORKING.take(MAX_WORKING)) {
            let (sender, done) = channel();
            let search = Search {
                view,
                attribute: asked.parameter("attribute").map(str::to_owned),
                directory: asked.directory.clone(),
                path: asked.path.display(),
                errors: asked.errors.clone(),
                is_data: viewed.data,
                found: found.clone(),
            };
            let requester = requester::requester();
            let started = Builder::new().spawn(move || {
                let _working = working;
                requester::on_behalf_of(requester, || search.run());
                // Nobody listens who has waited too long.
                let _ = sender.send(());
            });
            lock(&found).failed |= started.is_err();
            late = done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
        }
        let mut found = std::mem::take(&mut *lock(&found));
        found.failed |= view.is_none();
        Overview { view, found, late }
    }
}

/// Finds out what a page shows of a view, the cheapest first.
struct Search {
    view: Arc<View>,
    /// The attribute whose picture is asked for.
    attribute: Option<String>,
    directory: Arc<dyn Directory>,
    path: String,
    errors: Arc<ErrorLog>,
    /// Whether that is the directory of the view; otherwise its `data/` is.
    is_data: bool,
    found: Arc<Mutex<Found>>,
}

impl Search {
    fn run(&self) {
        if let Err(error) = self.try_run() {
            self.errors.record(&self.path, &error);
            lock(&self.found).failed = true;
        }
    }

    fn try_run(&self) -> Result<()> {
        let view = &self.view;
        if view.is_dense() {
            lock(&self.found).shape = Some(view.shape()?);
        } else if let Some(count) = view.known_count()? {
            lock(&self.found).shape = Some(vec![count]);
        }
        lock(&self.found).files = self.files()?;
        let (mut names, mut pictures, mut reason) = (Vec::new(), Vec::new(), None);
        for (field, name) in encoded_names(view).into_iter().enumerate().take(FIELDS) {
            match Picture::of(view, field) {
                Ok(picture) => {
                    names.push(name);
                    pictures.push(picture);
                }
                Err(error) if error.is_of_a_name() => reason = Some(error.message().to_owned()),
                Err(error) => return Err(error),
            }
        }
        let asked = names
            .iter()
            .position(|name| Some(headers::spelled(name.as_bytes())) == self.attribute);
        let chosen = asked.unwrap_or(0);
        let picture = match pictures.get(chosen) {
            Some(picture) => Some(Ok((chosen, picture.clone()))),
            None => reason.map(Err),
        };
        let mut found = lock(&self.found);
        (found.pictured, found.picture) = (names, picture);
        drop(found);
        let rows = preview::rows(view, ROWS, COLUMNS)?;
        lock(&self.found).rows = Some(rows);
        Ok(())
    }

    fn files(&self) -> Result<Vec<OsString>> {
        let listing = match self.is_data {
            true => self.directory.list()?,
            false => match self.directory.lookup(OsStr::new("data"))? {
                Some(Node::Directory(data)) => data.list()?,
                _ => return Ok(Vec::new()),
            },
        };
        Ok(listing.entries().map(|(name, _)| name.into_owned()).collect())
    }
}

impl Overview {
    /// What it is, in a line.
    fn summary(&self, kind: DirectoryKind) -> String {
        let Some(view) = &self.view else {
            return "Array that cannot be read".to_owned();
        };
        let dense = if view.is_dense() { "Dense" } else { "Sparse" };
        let what = if kind == DirectoryKind::Array {
            "array"
        } else {
            "view"
        };
        let cells = match self.found.shape.as_deref() {
            None => String::new(),
            Some([1]) => ", 1 cell".to_owned(),
            Some(shape) => {
                let lengths: Vec<String> = shape.iter().map(u64::to_string).collect();
                format!(", {} cells", lengths.join(" \u{d7} "))
            }
        };
        let order = match view.is_dense() {
            true => "row-major".to_owned(),
            false => format!("{} order", view.schema().cell_order.name()),
        };
        format!("{dense} {what}{cells}, {order}")
    }

    /// The picture, the first rows and the schema.
    fn sections(&self, asked: &Asked, viewed: &Viewed, out: &mut String) {
        if self.found.failed {
            out.push_str("<p role=\"status\">Some of it cannot be read; the server's log says more.</p>\n");
        }
        match &self.found.picture {
            Some(Ok((chosen, picture))) => self.figure(*chosen, picture, asked, viewed, out),
            Some(Err(reason)) => {
                let _ = writeln!(out, "<p class=\"muted\">No picture: {}.</p>", Html(reason));
            }
            None => {}
        }
        match &self.found.rows {
            Some(rows) => table_of_rows(rows, out),
            None if self.late => out.push_str(
                "<p class=\"muted\" role=\"status\">The first rows take longer than a second; head.csv has them.</p>\n",
            ),
            None => {}
        }
        if let Some(view) = &self.view {
            table_of_fields(view, out);
        }
    }

    /// The picture, with a form to choose another one.
    fn figure(&self, chosen: usize, picture: &Picture, asked: &Asked, viewed: &Viewed, out: &mut String) {
        let name = &self.found.pictured[chosen];
        let band = asked.parameter("band").and_then(|band| band.parse().ok());
        let band: u64 = band.filter(|band| *band < picture.bands).unwrap_or(0);
        let data = if viewed.data { "" } else { "data/" };
        let encoded = path::encode(OsStr::new(name));
        let (width, height) = displayed(picture.pixels());
        let _ = writeln!(
            out,
            "<h2>Picture</h2>\n<figure><img id=\"picture\" src=\"{}{data}?picture={encoded}&amp;band={band}\" \
             width=\"{width}\" height=\"{height}\" alt=\"{name}, {} rows by {} columns\">\n\
             <figcaption>{name}: {} rows by {} columns, dark is low, light is high</figcaption></figure>",
            asked.url_path(),
            picture.height,
            picture.width,
            picture.height,
            picture.width,
            name = shown(OsStr::new(name)),
        );
        if self.found.pictured.len() < 2 && picture.bands < 2 {
            return;
        }
        out.push_str("<form method=\"get\"><label for=\"attribute\">Attribute</label><select id=\"attribute\" name=\"attribute\">");
        for (index, name) in self.found.pictured.iter().enumerate() {
            let selected = if index == chosen { " selected" } else { "" };
            let _ = write!(
                out,
                "<option value=\"{}\"{selected}>{}</option>",
                Html(headers::spelled(name.as_bytes())),
                shown(OsStr::new(name))
            );
        }
        out.push_str("</select>");
        if picture.bands > 1 {
            let _ = write!(
                out,
                "<label for=\"band\">Band</label><input id=\"band\" name=\"band\" type=\"number\" min=\"0\" \
                 max=\"{}\" value=\"{band}\">",
                picture.bands - 1
            );
        }
        out.push_str("<button>Show</button></form>\n");
    }
}

/// Width and height at which a picture of so many pixels is shown: small ones are enlarged, long ones made
/// wider.
fn displayed((width, height): (u64, u64)) -> (u64, u64) {
    /// The shortest long side, and how much shorter the other may be.
    const LONG: u64 = 256;
    const RATIO: u64 = 4;
    let scale = LONG.div_ceil(width.max(height));
    let (width, height) = (width * scale, height * scale);
    (width.max(height / RATIO), height.max(width / RATIO))
}

/// The first rows.
fn table_of_rows(rows: &preview::Rows, out: &mut String) {
    out.push_str(
        "<h2 id=\"first\">First rows</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-labelledby=\"first\">\n<table id=\"rows\" aria-labelledby=\"first\">\n<thead><tr>",
    );
    for name in &rows.names {
        let _ = write!(out, "<th scope=\"col\">{}</th>", Html(name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &rows.rows {
        out.push_str("<tr>");
        for cell in row {
            let _ = match cell {
                Some(text) => write!(out, "<td>{}</td>", Html(text)),
                None => write!(out, "<td class=\"null\">null</td>"),
            };
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    if rows.more > 0 {
        let _ = writeln!(out, "<p class=\"muted\">And {} more columns.</p>", rows.more);
    }
}

/// The schema.
fn table_of_fields(view: &View, out: &mut String) {
    out.push_str(
        "<h2 id=\"fields\">Schema</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"fields\">\n\
         <table id=\"schema\" aria-labelledby=\"fields\">\n<thead><tr>",
    );
    for head in ["Name", "Role", "Type", "Domain", "Filters"] {
        let _ = write!(out, "<th scope=\"col\">{head}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for field in preview::fields(view, FIELDS) {
        let role = if field.is_dimension {
            "dimension"
        } else {
            "attribute"
        };
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{role}</td>",
            Html(&field.name)
        );
        for text in [&field.form, &field.domain, &field.filters] {
            let _ = write!(
                out,
                "<td>{}</td>",
                Html(if text.is_empty() { "\u{2013}" } else { text })
            );
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    if view.fields().len() > FIELDS {
        let _ = writeln!(
            out,
            "<p class=\"muted\">And {} more.</p>",
            view.fields().len() - FIELDS
        );
    }
}

/// Commands to copy, with the URL of the request.
fn commands(asked: &Asked, known: Option<&Overview>, viewed: Option<&Viewed>, out: &mut String) {
    if host(&asked.origin) == "/" {
        return;
    }
    let url = format!("{}{}", asked.origin, asked.url_path());
    let mut all: Vec<(&str, String)> = Vec::new();
    if let (Some(known), Some(viewed)) = (known, viewed) {
        let data = format!("{url}{}", if viewed.data { "" } else { "data/" });
        let has = |name: &str| known.found.files.iter().any(|file| file == name);
        if has("table.parquet") {
            all.push((
                "DuckDB",
                format!("duckdb -c \"FROM '{data}table.parquet' LIMIT 10\""),
            ));
        }
        if has("table.csv") {
            let line = format!("import pandas; print(pandas.read_csv('{data}table.csv'))");
            all.push(("pandas", format!("python3 -c \"{line}\"")));
        }
        if has("array.zarr") {
            let line = format!("import xarray; print(xarray.open_zarr('{data}array.zarr'))");
            all.push(("xarray", format!("python3 -c \"{line}\"")));
        }
        if has("raster")
            && let Some(name) = known.found.pictured.first()
        {
            let file = path::encode(OsStr::new(&format!("{name}.tif")));
            all.push(("GDAL", format!("gdalinfo '/vsicurl/{data}raster/{file}'")));
        }
        all.push(("The first rows", format!("curl -g '{data}head.csv'")));
    } else {
        all.push(("Everything below", format!("wget -r -np '{url}'")));
        all.push(("As a folder", format!("sudo mount -t davfs -o ro '{url}' /mnt")));
    }
    all.push(("What is here, as JSON", format!("curl -g '{url}?json'")));
    out.push_str("<section id=\"commands\">\n<h2>Use it elsewhere</h2>\n");
    for (label, command) in all {
        let _ = writeln!(
            out,
            "<div class=\"command\"><h3>{label}</h3><pre tabindex=\"0\" aria-label=\"{label}\"><code data-origin=\"{}\">{}</code>\
             </pre><button type=\"button\" hidden>Copy</button></div>",
            Html(&asked.origin),
            Html(command)
        );
    }
    out.push_str("</section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Listing, Tree, TreeOptions};
    use std::collections::HashMap;
    use std::os::unix::ffi::OsStrExt;

    const ORIGIN: &str = "http://localhost:8470";

    fn asked(directory: Arc<dyn Directory>, path: &str, query: &[(&str, &str)]) -> Asked {
        let query = query
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        Asked {
            path: UrlPath::parse(path).unwrap(),
            listing: directory.list().unwrap(),
            directory,
            prefix: "/p".to_owned(),
            errors: Arc::default(),
            origin: ORIGIN.to_owned(),
            query: query.collect(),
        }
    }

    fn opened() -> Tree {
        let options = TreeOptions {
            cache_size: 64 << 20,
            ..TreeOptions::default()
        };
        Tree::open("tests/data/sample".as_ref(), &options).unwrap()
    }

    /// What a directory of the samples answers.
    fn sample(path: &str, query: &[(&str, &str)]) -> Page {
        let tree = opened();
        let Some(Node::Directory(directory)) = tree.root.find(path).unwrap() else {
            panic!("no {path}");
        };
        answer(asked(directory, path, query)).unwrap()
    }

    fn text(page: Page) -> String {
        let Page::Html { pieces, .. } = page else {
            panic!("no page")
        };
        pieces
            .map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap())
            .collect()
    }

    fn hrefs(page: &str) -> Vec<&str> {
        let links = page.split("<a href=\"").skip(1);
        links.map(|rest| rest.split('"').next().unwrap()).collect()
    }

    #[test]
    fn an_array_is_described() {
        let page = text(sample("/weather/", &[]));
        for part in [
            "<html lang=\"en\">",
            "<h1>weather</h1>",
            "Dense array, 365 × 6 cells, row-major",
            "<nav aria-label=\"Breadcrumb\"><ol><li><a href=\"/p/#\">localhost&#58;8470</a></li>\
             <li aria-current=\"page\">weather</li></ol></nav>",
            "src=\"/p/weather/data/?picture=temperature&amp;band=0\"",
            "<td>FLOAT32</td>",
            "<td>1 to 365</td>",
            "<td>fog</td>",
            "<td class=\"null\">null</td>",
            "duckdb -c &quot;FROM &#39;http&#58;//localhost&#58;8470/p/weather/data/table.parquet&#39; LIMIT 10&quot;",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        for id in ["entries", "schema", "picture", "rows", "commands", "at", "box"] {
            assert_eq!(page.matches(&format!("id=\"{id}\"")).count(), 1, "{id}");
        }
        let rows = page
            .split("id=\"rows\"")
            .nth(1)
            .unwrap()
            .split("</table>")
            .next()
            .unwrap();
        assert_eq!(rows.matches("<tr>").count(), 21);
        // Programs that look for URLs find none.
        assert!(!page.replace("data-origin", "").contains("http://"));
        assert_eq!(page.matches("<h1>").count(), 1);
    }

    #[test]
    fn the_links_are_the_entries() {
        let tree = opened();
        for path in [
            "/",
            "/weather/",
            "/weather/fragments/",
            "/weather/data/",
            "/weather/data/columns/",
        ] {
            let Some(Node::Directory(directory)) = tree.root.find(path).unwrap() else {
                panic!("no {path}");
            };
            let listing = directory.list().unwrap();
            let listed = listing
                .entries()
                .map(|(name, kind)| path::encode(&name) + if kind == NodeType::Directory { "/" } else { "" });
            let page = text(answer(asked(directory, path, &[])).unwrap());
            let (above, entries): (Vec<&str>, Vec<&str>) =
                hrefs(&page).into_iter().partition(|href| href.starts_with('/'));
            assert_eq!(entries, listed.collect::<Vec<_>>(), "{path}");
            assert_eq!(above.len(), path.matches('/').count() - 1, "{path}");
        }
    }

    #[test]
    fn the_policy_allows_the_page_itself() {
        let Page::Html { policy, pieces } = sample("/", &[]) else {
            panic!("no page")
        };
        let page: String = pieces
            .map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap())
            .collect();
        for (tag, source) in [("style", "style-src"), ("script", "script-src")] {
            let (start, end) = (format!("<{tag}>"), format!("</{tag}>"));
            let inner = page.split(&start).nth(1).unwrap().split(&end).next().unwrap();
            let hash = BASE64_STANDARD.encode(Sha256::digest(inner));
            assert!(policy.contains(&format!("{source} 'sha256-{hash}'")), "{policy}");
        }
        assert!(!page.contains(" style=") && !page.contains(" onclick="));
    }

    #[test]
    fn an_error_that_the_log_is_to_tell_is_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let copied = std::process::Command::new("cp")
            .args(["-r", "tests/data/sample/weather"])
            .arg(folder.path())
            .status();
        assert!(copied.unwrap().success());
        let tree = Tree::open(folder.path(), &TreeOptions::default()).unwrap();
        let page = || {
            let Some(Node::Directory(directory)) = tree.root.find("weather").unwrap() else {
                panic!("no array");
            };
            let asked = asked(directory, "/weather/", &[]);
            let errors = asked.errors.clone();
            (text(answer(asked).unwrap()), errors.snapshot().1)
        };
        let (whole, errors) = page();
        assert!(!whole.contains("log says more") && errors == 0, "{whole}");
        for fragment in std::fs::read_dir(folder.path().join("weather/__fragments")).unwrap() {
            std::fs::remove_file(fragment.unwrap().path().join("a0.tdb")).unwrap();
        }
        // What takes longer than a second is left out, on a busy machine all of it.
        let mut pages = std::iter::repeat_with(page).take(60);
        let told = pages.find(|(page, _)| page.contains("log says more"));
        assert_eq!(told.map(|(_, errors)| errors), Some(1));
    }

    #[test]
    fn a_choice_leads_to_its_path() {
        for (path, query, expected) in [
            ("/weather/", vec![("at", "2025-02")], "/p/weather/at/2025-02/"),
            (
                "/weather/",
                vec![("box", "1..5,0")],
                "/p/weather/data/subarray/1..5%2C0/",
            ),
            (
                "/weather/data/",
                vec![("at", "2025 a/b")],
                "/p/weather/at/2025%20a%2Fb/data/",
            ),
            (
                "/weather/at/2026/data/subarray/1..5,0/",
                vec![("at", "")],
                "/p/weather/data/subarray/1..5%2C0/",
            ),
            (
                "/weather/at/2026/data/subarray/1..5,0/",
                vec![("box", "..")],
                "/p/weather/at/2026/data/",
            ),
            (
                "/weather/at/2026/",
                vec![("box", "1..2,3"), ("at", "2027")],
                "/p/weather/at/2027/data/subarray/1..2%2C3/",
            ),
            (
                "/weather/data/subarray/1..5,0/",
                vec![("box", "2..3,1")],
                "/p/weather/data/subarray/2..3%2C1/",
            ),
            ("/weather/at/2026/", vec![("at", "")], "/p/weather/"),
        ] {
            match sample(path, &query) {
                Page::SeeOther(found) => assert_eq!(found, expected, "{path}"),
                _ => panic!("{path}"),
            }
        }
        assert!(matches!(sample("/", &[("at", "2025")]), Page::NotFound(_)));
        assert!(matches!(
            sample("/weather/fragments/", &[("box", "1")]),
            Page::NotFound(_)
        ));
    }

    #[test]
    fn pictures_are_there_or_not() {
        for (path, query, found) in [
            ("/weather/data/", vec![("picture", "temperature")], true),
            ("/weather/data/", vec![("picture", "wind"), ("band", "1")], true),
            ("/weather/data/", vec![("picture", "wind"), ("band", "2")], false),
            ("/weather/data/", vec![("picture", "wind"), ("band", "x")], false),
            ("/weather/data/", vec![("picture", "note")], false),
            ("/weather/data/", vec![("picture", "nothing")], false),
            ("/weather/fragments/", vec![("picture", "temperature")], false),
        ] {
            match sample(path, &query) {
                Page::Png(png) => assert!(found && png.starts_with(b"\x89PNG"), "{query:?}"),
                Page::NotFound(_) => assert!(!found, "{query:?}"),
                _ => panic!("{query:?}"),
            }
        }
    }

    /// A directory of files, the lengths of some of which are unknown, and of one that cannot be read.
    struct Files(Vec<(OsString, NodeType)>, HashMap<OsString, u64>);

    struct Stub(u64);

    impl crate::tree::File for Stub {
        fn stat(&self) -> Result<crate::tree::Stat> {
            Ok(crate::tree::Stat {
                len: self.0,
                version: 0,
            })
        }

        fn mtime(&self) -> u64 {
            if self.0 == 0 {
                u64::MAX
            } else {
                1_738_673_445_000 - self.0
            }
        }

        fn open(&self) -> Result<Arc<crate::layout::FileLayout>> {
            Err(Error::internal("not opened"))
        }

        fn known_len(&self) -> Result<Option<u64>> {
            Ok((self.0 % 7 != 3).then_some(self.0))
        }
    }

    impl Directory for Files {
        fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
            if name == "bad" {
                return Err(Error::corrupt("in /secret/path"));
            }
            let length = self.1.get(name).copied();
            Ok(length.map(|length| Node::File(Arc::new(Stub(length)))))
        }

        fn list(&self) -> Result<Arc<dyn Listing>> {
            Ok(Arc::new(self.0.clone()))
        }

        fn mtime(&self) -> u64 {
            0
        }
    }

    /// Files of 0, 1, 2 and so on bytes.
    fn files(names: impl IntoIterator<Item = OsString>) -> Arc<dyn Directory> {
        let names: Vec<OsString> = names.into_iter().collect();
        let entries = names.iter().map(|name| (name.clone(), NodeType::File)).collect();
        Arc::new(Files(entries, names.into_iter().zip(0..).collect()))
    }

    #[test]
    fn names_are_only_text() {
        let names = [
            &b"\"><script>alert(1)</script>"[..],
            b"' onmouseover='x",
            b"a&amp;b",
            b"javascript:alert(1)",
            b"\xff\x00\n\x1b[31m",
            "\u{202e}gnp.exe".as_bytes(),
            b"?a#b%41",
            b"bad",
        ];
        let directory = files(names.iter().map(|name| OsStr::from_bytes(name).to_owned()));
        let page = text(answer(asked(directory, "/%22%3E%3Cscript%3E/", &[])).unwrap());
        assert_eq!(page.matches("<script>").count(), 1, "{page}");
        assert!(
            !page.contains("<script>alert") && !page.contains("' onmouseover"),
            "{page}"
        );
        assert!(!page.contains('\u{202e}') && !page.contains('\u{1b}'));
        let entries: Vec<&str> = hrefs(&page).into_iter().skip(1).collect();
        for (href, name) in entries.iter().zip(names) {
            assert_eq!(*href, path::encode(OsStr::from_bytes(name)));
            assert!(
                href.bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"%-._~".contains(&byte))
            );
        }
        assert_eq!(entries.len(), names.len());
        // An entry that cannot be read is there, without what the error says.
        assert!(page.contains(">bad</a></th><td class=\"n\">cannot be read</td>"));
        assert!(!page.contains("secret"));
    }

    #[test]
    fn pages_of_many_entries_and_their_orders() {
        let directory = files((0..25_000).map(|index| format!("f{:05}", 24_999 - index).into()));
        let page = |query: &[(&str, &str)]| {
            let page = text(answer(asked(directory.clone(), "/d/", query)).unwrap());
            let names: Vec<String> = hrefs(&page).into_iter().skip(1).map(str::to_owned).collect();
            (page, names)
        };
        let (first, names) = page(&[]);
        assert_eq!(
            (names.len(), &*names[0], &*names[9999]),
            (10_000, "f24999", "f15000")
        );
        assert_eq!(first.matches("aria-sort=\"none\"").count(), 3);
        assert!(first.contains("Entries 1 to 10000 of 25000") && !first.contains("Previous"));
        assert!(first.contains("<td class=\"n unknown\">?</td>"));
        let (last, names) = page(&[("from", "20000"), ("sort", "name")]);
        assert_eq!((names.len(), &*names[0]), (5000, "f20000"));
        assert!(last.contains("value=\"10000\">Previous") && !last.contains("Next"));
        assert!(last.contains("<input type=\"hidden\" name=\"sort\" value=\"name\">"));
        assert!(last.contains("aria-sort=\"ascending\"><button name=\"sort\" value=\"-name\""));
        let (_, names) = page(&[("sort", "-name")]);
        assert_eq!(&*names[0], "f24999");
        // Unknown lengths come last.
        let (_, names) = page(&[("sort", "size"), ("from", "20000")]);
        assert_eq!(&*names[4999], "f00006");
        let (_, names) = page(&[("sort", "-size")]);
        assert_eq!(&*names[0], "f00000");
        let (_, names) = page(&[("sort", "time")]);
        assert_eq!(&*names[0], "f00000");
        for odd in [("from", "25000"), ("from", "-1"), ("sort", "x")] {
            assert_eq!(page(&[odd]).1[0], "f24999");
        }
    }

    /// As many entries as can be counted.
    struct Countless;

    impl Listing for Countless {
        fn len(&self) -> u64 {
            u64::MAX
        }

        fn get(&self, index: u64) -> Option<(std::borrow::Cow<'_, OsStr>, NodeType)> {
            Some((OsString::from(index.to_string()).into(), NodeType::File))
        }
    }

    impl Directory for Countless {
        fn lookup(&self, _: &OsStr) -> Result<Option<Node>> {
            Ok(Some(Node::File(Arc::new(Stub(1)))))
        }

        fn list(&self) -> Result<Arc<dyn Listing>> {
            Ok(Arc::new(Countless))
        }

        fn mtime(&self) -> u64 {
            0
        }
    }

    #[test]
    fn countless_entries_are_not_sorted() {
        let last = (u64::MAX - 1).to_string();
        for sort in ["name", "-size", "time"] {
            let query = [("sort", sort), ("from", &last)];
            let page = text(answer(asked(Arc::new(Countless), "/d/", &query)).unwrap());
            assert_eq!(hrefs(&page)[1..], [&*last], "{sort}");
            assert!(!page.contains("name=\"sort\" value=\"name\" form"), "{sort}");
        }
    }

    #[test]
    fn a_host_that_is_none_is_not_repeated() {
        for (origin, expected) in [
            ("http://localhost:80", "localhost:80"),
            ("https://[::1]:443", "[::1]:443"),
            ("http://a';b", "/"),
            ("http://", "/"),
            ("", "/"),
        ] {
            assert_eq!(host(origin), expected);
        }
    }
}
