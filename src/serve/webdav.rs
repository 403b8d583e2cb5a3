//! WebDAV, read-only: PROPFIND (RFC 4918).
//!
//! A request names properties, or asks for all of them or for their names. The answer has a `response` for
//! the resource, and with `Depth: 1` for each entry of a directory: its `href`, an absolute path, and its
//! properties in a `propstat` for each status: 200 for what there is, 404 for what there is not, 500 for what
//! could not be found out. A request for all properties has one `propstat`, unless a length could not be
//! found out.
//!
//! ```text
//! <?xml version="1.0" encoding="utf-8"?>
//! <D:multistatus xmlns:D="DAV:">
//! <D:response><D:href>/weather/</D:href><D:propstat><D:prop><D:resourcetype><D:collection/></D:resourcetype>
//! <D:getlastmodified>Tue, 04 Feb 2025 00:00:00 GMT</D:getlastmodified></D:prop>
//! <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>
//! </D:multistatus>
//! ```

use super::Pieces;
use super::entry::{Asked, Entry, child};
use crate::error::Result;
use crate::tree::{Node, NodeType, follow};
use quick_xml::NsReader;
use quick_xml::escape::escape;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{PrefixDeclaration, ResolveResult};
use std::ffi::OsStr;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

/// The longest body of a request, in bytes. A longer one is answered with 413.
pub const MAX_BODY: usize = 64 << 10;

/// The media type of answers.
pub const CONTENT_TYPE: &str = "application/xml; charset=utf-8";

/// The body of the answer 403 to a request of infinite depth.
pub const FINITE_DEPTH: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
    <D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>\n";

/// Size of a piece of an answer, in bytes, unless one response is longer.
const PIECE: usize = 16 << 10;

/// The namespace of WebDAV's own elements.
const DAV: &str = "DAV:";

/// The namespaces of XML's own prefixes, which no other prefix may have.
const RESERVED: [&str; 2] = [
    "http://www.w3.org/XML/1998/namespace",
    "http://www.w3.org/2000/xmlns/",
];

/// The deepest that elements may be nested.
const MAX_DEPTH: usize = 32;

/// The most properties that a request names, and the most bytes of a namespace as it is written: each name is
/// kept with its namespace, and compared with those before it.
const MAX_NAMED: usize = 256;
const MAX_NAMESPACE: usize = 1 << 10;

/// Whether a request asks for the entries of a directory, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The resource alone.
    Zero,
    /// The resource, and the entries of a directory.
    One,
}

impl Depth {
    /// The depth in the `Depth` header. None for infinity, which the lack of the header means too, and for
    /// what is no depth.
    pub fn parse(header: Option<&[u8]>) -> Option<Depth> {
        match header?.trim_ascii() {
            b"0" => Some(Depth::Zero),
            b"1" => Some(Depth::One),
            _ => None,
        }
    }
}

/// Why a body is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadBody {
    /// It is no well-formed XML with namespaces, has a document type, or is no request. One line that says
    /// which.
    Malformed(String),
    /// It is longer than [`MAX_BODY`].
    TooLarge,
}

/// The properties that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Propfind {
    /// All, with their values.
    All,
    /// The names of all.
    Names,
    /// Those of these names, each once.
    Named(Vec<Property>),
}

/// The name of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// The URI of its namespace; empty if it has none.
    pub namespace: String,
    /// Its name in the namespace.
    pub name: String,
}

/// The properties that resources have, in the order in which they are answered.
const KNOWN: [&str; 7] = [
    "resourcetype",
    "displayname",
    "getlastmodified",
    "creationdate",
    "getcontentlength",
    "getetag",
    "getcontenttype",
];

/// Parses the body of a request; an empty one asks for all properties.
pub fn parse(body: &[u8]) -> std::result::Result<Propfind, BadBody> {
    if body.len() > MAX_BODY {
        return Err(BadBody::TooLarge);
    }
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    if body.trim_ascii().is_empty() {
        return Ok(Propfind::All);
    }
    let text = std::str::from_utf8(body).map_err(|_| "the body is not UTF-8".to_owned());
    text.and_then(|text| Parser::default().parse(text))
        .map_err(BadBody::Malformed)
}

/// What was found of a request.
#[derive(Default)]
struct Parser {
    /// The number of open elements.
    depth: usize,
    /// Whether the root was closed.
    ended: bool,
    /// What is asked for, once it is known.
    wanted: Option<Propfind>,
    /// Whether the open element of depth 2 is `prop`.
    in_prop: bool,
}

impl Parser {
    fn parse(mut self, text: &str) -> std::result::Result<Propfind, String> {
        let mut reader = NsReader::from_str(text);
        reader.config_mut().check_comments = true;
        loop {
            let at = reader.buffer_position();
            let event = reader.read_event().map_err(|error| error.to_string());
            let event = event.map_err(|error| format!("not XML at byte {at}: {error}"))?;
            let done = match event {
                Event::Start(element) => self.start(&reader, &element),
                Event::Empty(element) => self.start(&reader, &element).and_then(|()| self.end()),
                Event::End(_) => self.end(),
                Event::Text(text) if self.depth == 0 && !text.trim_ascii().is_empty() => {
                    Err("text outside of the element".to_owned())
                }
                Event::CData(_) | Event::GeneralRef(_) if self.depth == 0 => {
                    Err("text outside of the element".to_owned())
                }
                // No others are declared without a document type.
                Event::GeneralRef(name)
                    if !name.is_char_ref()
                        && !["lt", "gt", "amp", "apos", "quot"]
                            .map(str::as_bytes)
                            .contains(&&*name) =>
                {
                    Err("an entity that is not declared".to_owned())
                }
                Event::Decl(_) if at > 0 => Err("a declaration that is not at the beginning".to_owned()),
                Event::DocType(_) => Err("a document type".to_owned()),
                Event::Eof if self.ended => break,
                Event::Eof => Err("the end is missing".to_owned()),
                _ => Ok(()),
            };
            done.map_err(|what| format!("not a request at byte {at}: {what}"))?;
        }
        self.wanted
            .ok_or_else(|| "the request has neither prop, allprop nor propname".to_owned())
    }

    /// An element begins.
    fn start(
        &mut self,
        reader: &NsReader<&[u8]>,
        element: &BytesStart<'_>,
    ) -> std::result::Result<(), String> {
        check_attributes(element)?;
        let property = property(reader, element)?;
        let is = |name: &str| property.namespace == DAV && property.name == name;
        match self.depth {
            0 if self.ended => return Err("a second element at the top".to_owned()),
            0 if !is("propfind") => return Err(format!("{:?} is not propfind", property.name)),
            1 => {
                self.in_prop = is("prop");
                let wanted = match () {
                    () if self.in_prop => Some(Propfind::Named(Vec::new())),
                    () if is("allprop") => Some(Propfind::All),
                    () if is("propname") => Some(Propfind::Names),
                    // `include`, and what a later standard may add.
                    () => None,
                };
                if wanted.is_some() && self.wanted.is_some() {
                    return Err("a second list of properties".to_owned());
                }
                self.wanted = self.wanted.take().or(wanted);
            }
            2 if self.in_prop => {
                if let Some(Propfind::Named(named)) = &mut self.wanted
                    && !named.contains(&property)
                {
                    if named.len() == MAX_NAMED {
                        return Err(format!("more than {MAX_NAMED} properties"));
                    }
                    named.push(property);
                }
            }
            MAX_DEPTH => return Err("elements are nested too deeply".to_owned()),
            _ => {}
        }
        self.depth += 1;
        Ok(())
    }

    /// An element ends; the reader has found that it is the open one.
    fn end(&mut self) -> std::result::Result<(), String> {
        self.depth -= 1;
        self.ended = self.depth == 0;
        Ok(())
    }
}

/// An error unless the attributes of an element are well-formed, and each prefix is declared to be of a
/// namespace.
fn check_attributes(element: &BytesStart<'_>) -> std::result::Result<(), String> {
    for attribute in element.attributes() {
        let attribute = attribute.map_err(|error| error.to_string())?;
        let prefix = matches!(
            attribute.key.as_namespace_binding(),
            Some(PrefixDeclaration::Named(_))
        );
        if prefix && attribute.value.is_empty() {
            return Err("a prefix of no namespace".to_owned());
        }
    }
    Ok(())
}

/// The name of an element, which may be written into an answer.
fn property(reader: &NsReader<&[u8]>, element: &BytesStart<'_>) -> std::result::Result<Property, String> {
    let (namespace, name) = reader.resolver().resolve_element(element.name());
    let name = String::from_utf8_lossy(name.into_inner()).into_owned();
    let namespace = match namespace {
        ResolveResult::Unbound => String::new(),
        ResolveResult::Bound(namespace) if namespace.as_ref().len() > MAX_NAMESPACE => {
            return Err(format!("a namespace of more than {MAX_NAMESPACE} bytes"));
        }
        ResolveResult::Bound(namespace) => {
            let uri = String::from_utf8_lossy(namespace.into_inner()).into_owned();
            let uri = quick_xml::escape::unescape(&uri).map_err(|error| error.to_string())?;
            uri.into_owned()
        }
        ResolveResult::Unknown(_) => return Err(format!("the prefix of {name:?} is not declared")),
    };
    if !name.starts_with(begins_name) || !name.chars().all(continues_name) {
        return Err(format!("{name:?} is not the name of an element"));
    }
    if !namespace.chars().all(is_character) || RESERVED.contains(&&*namespace) {
        return Err(format!("{namespace:?} is not the namespace of a property"));
    }
    Ok(Property { namespace, name })
}

/// Whether a name may begin with a character: NameStartChar of XML without the colon.
fn begins_name(c: char) -> bool {
    matches!(c, 'A'..='Z' | '_' | 'a'..='z' | '\u{c0}'..='\u{2ff}' | '\u{370}'..='\u{1fff}'
        | '\u{200c}' | '\u{200d}' | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}'
        | '\u{3001}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
        && !matches!(c, '\u{d7}' | '\u{f7}' | '\u{37e}' | '\u{e000}'..='\u{f8ff}')
}

/// Whether a name may have a character after the first: NameChar of XML without the colon.
fn continues_name(c: char) -> bool {
    begins_name(c)
        || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}' | '\u{2040}')
}

/// The answer for a file or directory, and for the entries of the directory `below`, which is that directory.
/// Paths are those of the tree after `prefix`. An entry that cannot be looked up has a name and a type.
pub fn multistatus(wanted: Propfind, target: Entry, below: Option<Asked>, prefix: String) -> Pieces {
    Box::new(Answer {
        target,
        below,
        wanted,
        prefix,
        next: Next::Own,
    })
}

/// What an answer continues with.
enum Next {
    Own,
    Entry(u64),
    Nothing,
}

struct Answer {
    target: Entry,
    below: Option<Asked>,
    wanted: Propfind,
    prefix: String,
    next: Next,
}

impl Iterator for Answer {
    type Item = Result<::bytes::Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut out = String::new();
        while out.len() < PIECE {
            match self.next {
                Next::Own => {
                    out.push_str(
                        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n",
                    );
                    self.describe(&self.target, &mut out);
                    self.next = Next::Entry(0);
                }
                Next::Entry(index) => {
                    let below = self.below.as_ref();
                    let listed = below.and_then(|asked| Some((asked, asked.listing.get(index)?)));
                    let Some((asked, (name, kind))) = listed else {
                        out.push_str("</D:multistatus>\n");
                        self.next = Next::Nothing;
                        continue;
                    };
                    self.next = Next::Entry(index + 1);
                    let path = child(&asked.path, name.clone().into_owned());
                    match follow(&*asked.directory, &name) {
                        Ok(Some(node)) => self.describe(&Entry { path, node }, &mut out),
                        Ok(None) => {}
                        Err(error) => {
                            log::debug!("{}: {error}", path.display());
                            let href = path.encode(kind == NodeType::Directory);
                            self.respond(&href, &name, kind == NodeType::Directory, None, &mut out);
                        }
                    }
                }
                Next::Nothing => break,
            }
        }
        (!out.is_empty()).then(|| Ok(out.into()))
    }
}

/// What is known of a resource besides its name and type.
struct Details {
    /// Milliseconds since the Unix epoch.
    mtime: u64,
    /// Of a file.
    file: Option<FileDetails>,
}

struct FileDetails {
    /// Length in bytes, and the entity tag if it has one; None if they cannot be found out.
    state: Option<(u64, Option<String>)>,
    content_type: &'static str,
}

impl Answer {
    /// Appends the response for a node.
    fn describe(&self, entry: &Entry, out: &mut String) {
        // Not later than the state.
        let mtime = entry.mtime();
        let file = matches!(entry.node, Node::File(_)).then(|| {
            let stat = entry.stat();
            if let Err(error) = &stat {
                log::debug!("{}: {error}", entry.path.display());
            }
            FileDetails {
                state: stat.ok().flatten().map(|stat| (stat.len, entry.etag(stat))),
                content_type: entry.content_type(),
            }
        });
        let details = Details { mtime, file };
        let href = entry.path.encode(entry.is_directory());
        self.respond(&href, entry.name(), entry.is_directory(), Some(&details), out);
    }

    /// Appends a response; without details, all but name and type could not be found out.
    fn respond(
        &self,
        href: &str,
        name: &OsStr,
        is_directory: bool,
        details: Option<&Details>,
        out: &mut String,
    ) {
        let _ = write!(out, "<D:response><D:href>{}{href}</D:href>", escape(&self.prefix));
        let (mut found, mut missing, mut failed) = (String::new(), String::new(), String::new());
        let value = |property: &str| value(property, name, is_directory, details);
        match &self.wanted {
            Propfind::All => {
                for property in KNOWN {
                    match value(property) {
                        Value::Text(text) => {
                            let _ = write!(found, "<D:{property}>{text}</D:{property}>");
                        }
                        Value::Unknown => {
                            let _ = write!(failed, "<D:{property}/>");
                        }
                        Value::Missing => {}
                    }
                }
            }
            Propfind::Names => {
                let names = KNOWN
                    .into_iter()
                    .filter(|property| !matches!(value(property), Value::Missing));
                names.for_each(|property| {
                    let _ = write!(found, "<D:{property}/>");
                });
            }
            Propfind::Named(named) => {
                for property in named {
                    let known = (property.namespace == DAV).then(|| value(&property.name));
                    let name = &property.name;
                    match known.unwrap_or(Value::Missing) {
                        Value::Text(text) => {
                            let _ = write!(found, "<D:{name}>{text}</D:{name}>");
                        }
                        Value::Unknown => {
                            let _ = write!(failed, "<D:{name}/>");
                        }
                        Value::Missing if property.namespace == DAV => {
                            let _ = write!(missing, "<D:{name}/>");
                        }
                        Value::Missing => {
                            let _ = write!(missing, "<{name} xmlns=\"{}\"/>", escape(&property.namespace));
                        }
                    }
                }
            }
        }
        let none = found.is_empty() && missing.is_empty() && failed.is_empty();
        for (properties, status) in [
            (found, "200 OK"),
            (missing, "404 Not Found"),
            (failed, "500 Internal Server Error"),
        ] {
            // A response has a propstat even if nothing was asked for.
            if !properties.is_empty() || none && status == "200 OK" {
                let _ = write!(
                    out,
                    "<D:propstat><D:prop>{properties}</D:prop><D:status>HTTP/1.1 {status}</D:status></D:propstat>"
                );
            }
        }
        out.push_str("</D:response>\n");
    }
}

/// The value of a property.
enum Value {
    /// As XML.
    Text(String),
    /// The resource does not have it.
    Missing,
    /// It could not be found out.
    Unknown,
}

/// The value of one of the properties [`KNOWN`], and of others that they are missing.
fn value(property: &str, name: &OsStr, is_directory: bool, details: Option<&Details>) -> Value {
    let of_file = KNOWN[4..].contains(&property);
    match property {
        "resourcetype" if is_directory => return Value::Text("<D:collection/>".to_owned()),
        "resourcetype" => return Value::Text(String::new()),
        "displayname" => return Value::Text(escape(characters(&name.to_string_lossy())).into_owned()),
        _ if !KNOWN.contains(&property) || of_file && is_directory => return Value::Missing,
        _ => {}
    }
    let Some(details) = details else {
        return Value::Unknown;
    };
    let of_file = || details.file.as_ref();
    let found = match property {
        "getlastmodified" => return http_date(details.mtime).map_or(Value::Missing, Value::Text),
        "creationdate" => {
            let date = http_date(details.mtime).map(|_| crate::calendar::timestamp(details.mtime));
            return date.map_or(Value::Missing, Value::Text);
        }
        "getcontenttype" => of_file().map(|file| file.content_type.to_owned()),
        "getcontentlength" => of_file().and_then(|file| Some(file.state.as_ref()?.0.to_string())),
        _ => match of_file().and_then(|file| file.state.as_ref()) {
            Some((_, None)) => return Value::Missing,
            Some((_, Some(etag))) => Some(escape(etag).into_owned()),
            None => None,
        },
    };
    found.map_or(Value::Unknown, Value::Text)
}

/// `text` with U+FFFD in place of characters that XML does not have.
fn characters(text: &str) -> String {
    let shown = |c| {
        if is_character(c) {
            c
        } else {
            char::REPLACEMENT_CHARACTER
        }
    };
    text.chars().map(shown).collect()
}

/// Whether XML has a character, and keeps it in attributes as it is.
fn is_character(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// A time in milliseconds since the Unix epoch as HTTP writes it; None after the year 9999.
pub fn http_date(milliseconds: u64) -> Option<String> {
    const YEAR_10000: u64 = 253_402_300_800_000;
    (milliseconds < YEAR_10000)
        .then(|| httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(milliseconds)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::path::UrlPath;
    use crate::tree::{Tree, TreeOptions};
    use std::sync::Arc;

    fn named(names: &[(&str, &str)]) -> Propfind {
        let property = |(namespace, name): &(&str, &str)| Property {
            namespace: namespace.to_string(),
            name: name.to_string(),
        };
        Propfind::Named(names.iter().map(property).collect())
    }

    #[test]
    fn what_clients_send_is_understood() {
        let dav = |names: &[&'static str]| named(&names.iter().map(|name| (DAV, *name)).collect::<Vec<_>>());
        // Explorer, object_store and rclone (vendor `other`) send no body.
        assert_eq!(parse(b""), Ok(Propfind::All));
        assert_eq!(parse(b"\r\n"), Ok(Propfind::All));
        // macOS: a prefix, and line feeds between elements.
        let finder = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:propfind xmlns:D=\"DAV:\">\n<D:prop>\n\
            <D:getlastmodified/>\n<D:getcontentlength/>\n<D:creationdate/>\n<D:resourcetype/>\n</D:prop>\n</D:propfind>\n";
        let wanted = [
            "getlastmodified",
            "getcontentlength",
            "creationdate",
            "resourcetype",
        ];
        assert_eq!(parse(finder.as_bytes()), Ok(dav(&wanted)));
        let quota = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:propfind xmlns:D=\"DAV:\">\n<D:prop>\n\
            <D:quota-available-bytes/>\n<D:quota-used-bytes/>\n</D:prop>\n</D:propfind>\n";
        let wanted = ["quota-available-bytes", "quota-used-bytes"];
        assert_eq!(parse(quota.as_bytes()), Ok(dav(&wanted)));
        // neon, which davfs2 and cadaver use: each name declares its namespace.
        let neon = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<propfind xmlns=\"DAV:\"><prop>\n\
            <getetag xmlns=\"DAV:\"/>\n<executable xmlns=\"http://apache.org/dav/props/\"/>\n</prop></propfind>\n";
        let wanted = [(DAV, "getetag"), ("http://apache.org/dav/props/", "executable")];
        assert_eq!(parse(neon.as_bytes()), Ok(named(&wanted)));
        // rclone for Owncloud, and others with several prefixes; a name twice counts once.
        let rclone = "\u{feff}<?xml version='1.0'?><d:propfind xmlns:d='DAV:' xmlns:oc='http://owncloud.org/ns'>\
            <d:prop><d:getetag></d:getetag><oc:checksums/><d:getetag/></d:prop></d:propfind>";
        let wanted = [(DAV, "getetag"), ("http://owncloud.org/ns", "checksums")];
        assert_eq!(parse(rclone.as_bytes()), Ok(named(&wanted)));
        // GNOME and KDE.
        let all = "<propfind xmlns=\"DAV:\"><allprop/><include><x:a xmlns:x=\"y\"/></include></propfind>";
        assert_eq!(parse(all.as_bytes()), Ok(Propfind::All));
        assert_eq!(
            parse(b"<a:propfind xmlns:a='DAV:'><a:propname/></a:propfind>"),
            Ok(Propfind::Names)
        );
        // No namespace, and one with characters that are escaped.
        let odd =
            "<propfind xmlns=\"DAV:\"><prop><a xmlns=\"\"/><b xmlns=\"&lt;&#34;&amp;\"/></prop></propfind>";
        assert_eq!(parse(odd.as_bytes()), Ok(named(&[("", "a"), ("<\"&", "b")])));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let inside = |what: &str| format!("<propfind xmlns=\"DAV:\">{what}</propfind>");
        let deep = "<a>".repeat(MAX_DEPTH) + &"</a>".repeat(MAX_DEPTH);
        let many: String = (0..MAX_NAMED).map(|i| format!("<a{i}/>")).collect();
        assert!(parse(inside(&format!("<prop>{many}<a0/></prop>")).as_bytes()).is_ok());
        for (body, why) in [
            ("propfind".to_owned(), "text outside"),
            ("<".to_owned(), "not XML"),
            ("<propfind xmlns=\"DAV:\">".to_owned(), "the end is missing"),
            ("<propfind xmlns=\"DAV:\"><prop></propfind>".to_owned(), "not XML"),
            ("<propfind><allprop/></propfind>".to_owned(), "not propfind"),
            ("<D:propfind><D:allprop/></D:propfind>".to_owned(), "not declared"),
            ("<lockinfo xmlns=\"DAV:\"/>".to_owned(), "not propfind"),
            ("<!DOCTYPE a><propfind xmlns=\"DAV:\"><allprop/></propfind>".to_owned(), "document type"),
            (
                "<!DOCTYPE a [<!ENTITY b SYSTEM \"file:///etc/passwd\">]><propfind xmlns=\"DAV:\">&b;</propfind>".to_owned(),
                "document type",
            ),
            (inside("<prop>&b;</prop>"), "entity"),
            (inside(""), "neither"),
            (inside("<prop/><allprop/>"), "second list"),
            (inside("<allprop/>") + "<a/>", "second element"),
            (inside("<allprop/>") + "a", "text outside"),
            (inside("<prop><b:a xmlns:b=\"\"/></prop>"), "prefix"),
            (inside("<prop><b:a/></prop>"), "not declared"),
            (inside("<prop><a$b/></prop>"), "name of an element"),
            (inside("<prop><1/></prop>"), "name of an element"),
            (inside("<prop><a\u{b2}/></prop>"), "name of an element"),
            (inside("<prop><\u{300}a/></prop>"), "name of an element"),
            (inside("<prop><a xmlns=\"&#1;\"/></prop>"), "not the namespace"),
            (inside("<prop><a xmlns=\"b\u{ffff}\"/></prop>"), "not the namespace"),
            (inside("<prop><a xmlns=\"&#10;\"/></prop>"), "not the namespace"),
            (inside("<prop><xml:a/></prop>"), "not the namespace"),
            (inside("<prop a=b/>"), "not a request"),
            (inside(&format!("<prop>{deep}</prop>")), "too deeply"),
            (inside(&format!("<prop>{many}<b/></prop>")), "more than 256 properties"),
            (format!("<propfind xmlns=\"{}\"/>", "a".repeat(MAX_NAMESPACE + 1)), "more than 1024 bytes"),
        ] {
            match parse(body.as_bytes()) {
                Err(BadBody::Malformed(found)) => assert!(found.contains(why), "{body}: {found}"),
                other => panic!("{body}: {other:?}"),
            }
        }
        assert!(matches!(parse(b"<a\xff/>"), Err(BadBody::Malformed(_))));
        assert_eq!(parse(&vec![b' '; MAX_BODY + 1]), Err(BadBody::TooLarge));
        assert_eq!(parse(&vec![b' '; MAX_BODY]), Ok(Propfind::All));
    }

    #[test]
    fn depths() {
        assert_eq!(Depth::parse(Some(b"0")), Some(Depth::Zero));
        assert_eq!(Depth::parse(Some(b" 1 ")), Some(Depth::One));
        for infinite in [
            None,
            Some(&b"infinity"[..]),
            Some(b"Infinity"),
            Some(b"2"),
            Some(b""),
        ] {
            assert_eq!(Depth::parse(infinite), None);
        }
    }

    /// The answer for a path of the sample array.
    fn answered(wanted: Propfind, path: &str, below: bool) -> String {
        let tree = Tree::open("tests/data/sample".as_ref(), &TreeOptions::default()).unwrap();
        let target = Entry {
            path: UrlPath::parse(path).unwrap(),
            node: tree.root.find(path).unwrap().unwrap(),
        };
        let asked = match &target.node {
            Node::Directory(directory) if below => Some(Asked {
                path: target.path.clone(),
                directory: directory.clone(),
                listing: directory.list().unwrap(),
                prefix: "/p".to_owned(),
                errors: Arc::default(),
                origin: String::new(),
                query: Vec::new(),
            }),
            _ => None,
        };
        let pieces = multistatus(wanted, target, asked, "/p".to_owned());
        let pieces = pieces.map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap());
        pieces.collect()
    }

    #[test]
    fn all_properties_are_in_one_propstat() {
        let text = answered(Propfind::All, "/weather/schema.json", false);
        assert_eq!(text.matches("<D:response>").count(), 1);
        assert_eq!(text.matches("<D:propstat>").count(), 1);
        assert!(text.contains("<D:href>/p/weather/schema.json</D:href>"), "{text}");
        for property in KNOWN {
            assert!(text.contains(&format!("<D:{property}>")), "{property}: {text}");
        }
        let text = answered(Propfind::All, "/weather/", false);
        for property in ["getcontentlength", "getetag", "getcontenttype"] {
            assert!(!text.contains(property), "{text}");
        }
        assert!(text.contains("<D:resourcetype><D:collection/></D:resourcetype>"));
        assert!(text.contains("<D:getlastmodified>"));
        let names = answered(Propfind::Names, "/weather/", false);
        assert!(
            names.contains("<D:getlastmodified/>") && !names.contains("GMT"),
            "{names}"
        );
    }

    #[test]
    fn the_entries_are_those_of_the_listing() {
        let text = answered(Propfind::All, "/weather/", true);
        let hrefs: Vec<&str> = text
            .split("<D:href>")
            .skip(1)
            .map(|rest| rest.split('<').next().unwrap())
            .collect();
        assert_eq!(hrefs[..2], ["/p/weather/", "/p/weather/schema.json"]);
        assert!(hrefs.contains(&"/p/weather/data/"));
        assert_eq!(hrefs.len(), 11);
        assert!(text.ends_with("</D:multistatus>\n"));
    }

    #[test]
    fn other_properties_are_not_found() {
        let wanted = named(&[(DAV, "getetag"), (DAV, "quota"), ("", "a"), ("<\"&", "b")]);
        let text = answered(wanted, "/weather/", false);
        assert_eq!(text.matches("<D:propstat>").count(), 1);
        let missing = "<D:getetag/><D:quota/><a xmlns=\"\"/><b xmlns=\"&lt;&quot;&amp;\"/></D:prop>\
            <D:status>HTTP/1.1 404 Not Found</D:status>";
        assert!(text.contains(missing), "{text}");
        let text = answered(
            named(&[(DAV, "getetag"), ("x", "a")]),
            "/weather/schema.json",
            false,
        );
        assert_eq!(text.matches("<D:propstat>").count(), 2);
    }

    /// A directory of a file and a directory with these names, neither of which can be read.
    struct Broken(Vec<(std::ffi::OsString, NodeType)>);

    impl crate::tree::Directory for Broken {
        fn lookup(&self, _: &OsStr) -> Result<Option<Node>> {
            Err(crate::error::Error::corrupt("damaged"))
        }

        fn list(&self) -> Result<Arc<dyn crate::tree::Listing>> {
            Ok(Arc::new(self.0.clone()))
        }

        fn mtime(&self) -> u64 {
            u64::MAX
        }
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_there() {
        let entries = vec![
            ("a<&\u{1}\u{202e}".into(), NodeType::File),
            ("b".into(), NodeType::Directory),
        ];
        let directory: Arc<dyn crate::tree::Directory> = Arc::new(Broken(entries));
        let asked = Asked {
            path: UrlPath::parse("/").unwrap(),
            listing: directory.list().unwrap(),
            directory,
            prefix: String::new(),
            errors: Arc::default(),
            origin: String::new(),
            query: Vec::new(),
        };
        let target = Entry {
            path: asked.path.clone(),
            node: Node::Directory(asked.directory.clone()),
        };
        let pieces = multistatus(Propfind::All, target, Some(asked), String::new());
        let text: String = pieces
            .map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap())
            .collect();
        assert!(text.contains("<D:href>/a%3C%26%01%E2%80%AE</D:href>"), "{text}");
        assert!(
            text.contains("<D:displayname>a&lt;&amp;\u{fffd}\u{202e}</D:displayname>"),
            "{text}"
        );
        assert!(text.contains("<D:href>/b/</D:href>"), "{text}");
        let failed = "<D:getcontentlength/><D:getetag/><D:getcontenttype/></D:prop><D:status>HTTP/1.1 500";
        assert_eq!(text.matches(failed).count(), 1);
        // There is no HTTP date after the year 9999.
        assert!(!text.contains("GMT"));
    }
}
