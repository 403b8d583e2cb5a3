//! Compares columns and documents with `answers.json`, and reports differences.

use super::*;

/// Counts of comparisons by format version, and the differences.
#[derive(Default)]
pub(super) struct Report {
    pub(super) counts: BTreeMap<u64, [usize; 3]>,
    pub(super) groups: usize,
    pub(super) facts: usize,
    pub(super) failures: Vec<String>,
}

impl Report {
    pub(super) fn fail(&mut self, message: String) {
        self.failures.push(message);
    }

    /// Compares each key of `want` with that of `got`, which may have more keys.
    pub(super) fn facts(&mut self, place: &str, want: &Value, got: &Value) {
        match (want, got) {
            (Value::Object(want), Value::Object(got)) => {
                for (key, value) in want {
                    match got.get(key) {
                        Some(other) => self.facts(&format!("{place}.{key}"), value, other),
                        None => self.fail(format!("{place}: no {key:?}")),
                    }
                }
            }
            (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
                for (i, (value, other)) in want.iter().zip(got).enumerate() {
                    self.facts(&format!("{place}[{i}]"), value, other);
                }
            }
            _ => {
                self.facts += 1;
                if want != got {
                    self.fail(format!("{place}: {got}, libtiledb says {want}"));
                }
            }
        }
    }

    pub(super) fn json(&mut self, shown: &Shown, place: &str, path: &str) -> Value {
        let parsed = shown
            .read(path)
            .and_then(|bytes| serde_json::from_slice(&bytes).map_err(|e| e.to_string()));
        parsed.unwrap_or_else(|e| {
            self.fail(format!("{place}, {path}: {e}"));
            Value::Null
        })
    }

    pub(super) fn array(&mut self, shown: &Shown, path: &str, answer: &Value) {
        let place = format!("array {path}");
        self.counts.entry(number(&answer["format_version"])).or_default()[0] += 1;
        for (document, facts) in answer["json"].as_object().unwrap() {
            let got = self.json(shown, &place, document);
            self.facts(&format!("{place}, {document}"), facts, &got);
            if document == "metadata.json"
                && facts.as_object().unwrap().len() != got.as_object().map_or(0, Map::len)
            {
                self.fail(format!("{place}, {document}: other keys: {got}"));
            }
        }
        let listed = self.json(shown, &place, "fragments.json");
        let fragments = answer["fragments"].as_object().unwrap();
        let mut visible = 0;
        for entry in listed.as_array().into_iter().flatten() {
            let name = entry["name"].as_str().unwrap();
            let place = format!("{place}, fragments.json, {name}");
            match (fragments.get(name), &entry["visible"]) {
                (Some(answer), Value::Bool(true)) => {
                    visible += 1;
                    self.facts(&place, &answer["visible"], entry);
                    if !entry["reason"].is_null() {
                        self.fail(format!("{place}: {}", entry["reason"]));
                    }
                }
                (None, Value::Bool(false)) if entry["reason"].is_string() => {}
                (answer, visible) => self.fail(format!(
                    "{place}: visible: {visible}, {}, libtiledb sees it: {}",
                    entry["reason"],
                    answer.is_some()
                )),
            }
        }
        if visible != fragments.len() {
            self.fail(format!(
                "{place}: {visible} of {} visible fragments listed",
                fragments.len()
            ));
        }
        for (name, answer) in fragments {
            self.fragment(shown, &format!("{place}, fragment {name}"), name, answer);
        }
        for commit in self
            .json(shown, &place, "commits.json")
            .as_array()
            .into_iter()
            .flatten()
        {
            if !commit["error"].is_null() {
                self.fail(format!("{place}, commits.json: {commit}"));
            }
        }
    }

    pub(super) fn fragment(&mut self, shown: &Shown, place: &str, name: &str, answer: &Value) {
        let version = number(&answer["visible"]["format_version"]);
        let below = format!("fragments/{name}");
        let rtree = self.json(shown, place, &format!("{below}/rtree.json"));
        let leaves = rtree["levels"].as_array().and_then(|levels| levels.last());
        self.facts(
            &format!("{place}, leaves"),
            &answer["leaves"],
            leaves.unwrap_or(&Value::Array(vec![])),
        );
        for document in ["tiles.json", "statistics.json", "conditions.json"] {
            self.json(shown, place, &format!("{below}/{document}"));
        }
        let cells = number(&answer["visible"]["cell_num"]) as usize;
        let places: Vec<usize> = match answer["places"].as_array() {
            Some(places) => places.iter().map(|place| number(place) as usize).collect(),
            // libtiledb does not show deleted cells.
            None if answer["deletes"] == true => {
                let deleted = shown
                    .read(&format!("{below}/columns/__delete_timestamps/data.bin"))
                    .unwrap();
                let alive = deleted.chunks(8).enumerate().filter(|(_, t)| **t == [0xFF; 8]);
                alive.map(|(cell, _)| cell).collect()
            }
            None => (0..cells).collect(),
        };
        for (directory, column) in answer["columns"].as_object().unwrap() {
            let place = format!("{place}, field {}", column["field"]);
            match self.column(
                shown,
                &format!("{below}/columns/{directory}"),
                column,
                cells,
                &places,
            ) {
                Ok(()) => self.counts.entry(version).or_default()[2] += 1,
                Err(e) => self.fail(format!("{place}, {e}")),
            }
        }
        self.counts.entry(version).or_default()[1] += 1;
    }

    /// Compares one column: its cells, its tiles, its NumPy files.
    pub(super) fn column(
        &mut self,
        shown: &Shown,
        path: &str,
        answer: &Value,
        cells: usize,
        places: &[usize],
    ) -> Result<(), String> {
        let read = |name: &str| {
            shown
                .read(&format!("{path}/{name}"))
                .map_err(|e| format!("{name}: {e}"))
        };
        let words = |bytes: Vec<u8>| -> Vec<usize> {
            let word = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap()) as usize;
            bytes.chunks_exact(8).map(word).collect()
        };
        let data = read("data.bin")?;
        let wanted = unhex(answer["data"].as_str().unwrap());
        let wanted_offsets: Vec<usize> = match (&answer["offsets"], answer["cell_size"].as_u64()) {
            (Value::Array(offsets), _) => offsets.iter().map(|o| number(o) as usize).collect(),
            (_, size) => (0..=places.len()).map(|i| i * size.unwrap() as usize).collect(),
        };
        let mut files = vec![("data", data.clone())];
        let offsets = if answer["offsets"].is_array() {
            let bytes = read("offsets.bin")?;
            files.push(("offsets", bytes.clone()));
            words(bytes)
        } else {
            (0..=cells)
                .map(|i| i * answer["cell_size"].as_u64().unwrap() as usize)
                .collect()
        };
        if offsets.len() != cells + 1 || offsets.last() != Some(&data.len()) {
            return Err(format!(
                "{} offsets up to {:?} for {cells} cells in {} bytes",
                offsets.len(),
                offsets.last(),
                data.len()
            ));
        }
        if wanted_offsets.len() != places.len() + 1 || wanted_offsets.last() != Some(&wanted.len()) {
            return Err(format!(
                "{} cells, libtiledb reads {}",
                places.len(),
                wanted_offsets.len() - 1
            ));
        }
        for (i, &cell) in places.iter().enumerate() {
            let got = data.get(offsets[cell]..offsets[cell + 1]);
            let want = &wanted[wanted_offsets[i]..wanted_offsets[i + 1]];
            if got != Some(want) {
                return Err(format!("cell {cell}: {got:02x?}, libtiledb reads {want:02x?}"));
            }
        }
        if let Value::Array(want) = &answer["validity"] {
            let validity = read("validity.bin")?;
            if validity.len() != cells {
                return Err(format!("{} validity bytes", validity.len()));
            }
            for (&cell, want) in places.iter().zip(want) {
                if (validity[cell] != 0) != (number(want) != 0) {
                    return Err(format!(
                        "validity of cell {cell}: {}, libtiledb reads {want}",
                        validity[cell]
                    ));
                }
            }
            files.push(("validity", validity));
        }
        for (name, bytes) in &files {
            let npy = read(&format!("{name}.npy"))?;
            let header = npy.len().saturating_sub(bytes.len());
            if header == 0 || !header.is_multiple_of(64) || !npy.ends_with(bytes) {
                return Err(format!("{name}.npy: a header of {header} bytes, or other values"));
            }
        }
        let tiles = shown.names(&format!("{path}/tiles"))?.len() / files.len();
        for (name, bytes) in &files {
            let mut all = Vec::new();
            let mut start = 0;
            for tile in 0..tiles {
                let one = read(&format!("tiles/{tile}.{name}.bin"))?;
                if *name == "offsets" {
                    // Offsets of a tile count from the tile's start.
                    all.extend(words(one).iter().flat_map(|o| ((o + start) as u64).to_le_bytes()));
                    start += read(&format!("tiles/{tile}.data.bin"))?.len();
                } else {
                    all.extend(one);
                }
            }
            if *name == "offsets" {
                all.extend((data.len() as u64).to_le_bytes());
            }
            if all != *bytes {
                return Err(format!("the tiles of {name} are not the column"));
            }
        }
        Ok(())
    }

    pub(super) fn group(&mut self, shown: &Shown, path: &str, answer: &Value) {
        let place = format!("group {path}");
        self.groups += 1;
        let got = self.json(shown, &place, "group.json");
        let mut members: Vec<Value> = got["members"].as_array().cloned().unwrap_or_default();
        for member in &mut members {
            let uri = member["uri"].as_str().unwrap().trim_end_matches('/').to_owned();
            member["last"] = uri.rsplit('/').next().unwrap().into();
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        members.sort_by_key(|m| (text(&m["name"]), text(&m["last"])));
        self.facts(
            &format!("{place}, members"),
            &answer["members"],
            &Value::Array(members),
        );
        let metadata = self.json(shown, &place, "metadata.json");
        self.facts(
            &format!("{place}, metadata.json"),
            &answer["json"]["metadata.json"],
            &metadata,
        );
    }

    pub(super) fn compare(&mut self, shown: &Shown, path: &str, answer: &Value) {
        match answer["kind"].as_str() {
            Some("array") => self.array(shown, path, answer),
            _ => self.group(shown, path, answer),
        }
    }

    /// Prints the counts, whether or not the test passes. Fails if anything differs.
    pub(super) fn finish(self, title: &str) {
        let mut text = format!("{title}\n");
        let mut sum = [0; 3];
        for (version, counts) in &self.counts {
            let [arrays, fragments, columns] = counts;
            writeln!(
                text,
                "  format version {version:2}: {arrays} arrays, {fragments} fragments, {columns} columns"
            )
            .unwrap();
            sum = std::array::from_fn(|i| sum[i] + counts[i]);
        }
        let (groups, facts) = (self.groups, self.facts);
        writeln!(
            text,
            "  all: {} arrays, {} fragments, {} columns, {groups} groups, {facts} facts",
            sum[0], sum[1], sum[2]
        )
        .unwrap();
        // `print!` would be captured by the test harness.
        std::io::stdout().write_all(text.as_bytes()).unwrap();
        let first: Vec<&String> = self.failures.iter().take(20).collect();
        assert!(
            first.is_empty(),
            "{} differences:\n{first:#?}",
            self.failures.len()
        );
        assert_eq!(
            self.counts.keys().copied().collect::<Vec<_>>(),
            (1..=22).collect::<Vec<_>>()
        );
    }
}

pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

pub(super) fn unhex(text: &str) -> Vec<u8> {
    let byte = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}
