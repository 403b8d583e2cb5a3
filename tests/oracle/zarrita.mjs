// What zarrita reads: node zarrita.mjs MODULES FILE-OR-URL [NODE...]
//
// MODULES is the directory node_modules that has zarrita and @zarrita/storage. Prints JSON. Without a NODE: of the levels of an OME-Zarr image, path,
// scale, type, shape, and the SHA-256 of the values in row-major order. Else of each NODE its attributes, and of arrays type, shape, and that SHA-256;
// or the values, if these are text; or the value, if there is but one without an axis.

import { createHash } from "node:crypto";
import { pathToFileURL } from "node:url";

const [modules, place, ...nodes] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${modules}/${name}/dist/src/index.js`));
const zarr = await load("zarrita");
const { FetchStore, FileSystemStore } = await load("@zarrita/storage");

async function read(array) {
    const found = { type: array.dtype, shape: array.shape };
    const got = await zarr.get(array);
    if (array.shape.length === 0) return { ...found, value: String(got) };
    // Flags are in a class of their own, which has no places.
    const { stride } = got, data = array.dtype === "bool" ? Uint8Array.from(got.data, Number) : got.data;
    const rows = new data.constructor(data.length);
    const index = array.shape.map(() => 0);
    for (let i = 0; i < rows.length; i++) {
        rows[i] = data[index.reduce((sum, at, axis) => sum + at * stride[axis], 0)];
        for (let axis = index.length - 1; axis >= 0 && ++index[axis] === array.shape[axis]; axis--) index[axis] = 0;
    }
    if (Array.isArray(rows)) return { ...found, values: rows };
    const bytes = new Uint8Array(rows.buffer, rows.byteOffset, rows.byteLength);
    return { ...found, sha256: createHash("sha256").update(bytes).digest("hex") };
}

const store = place.startsWith("http") ? new FetchStore(place) : new FileSystemStore(place);
const group = await zarr.open(zarr.root(store), { kind: "group" });
const found = [];
if (nodes.length === 0) {
    for (const { path, coordinateTransformations } of group.attrs.ome.multiscales[0].datasets) {
        const array = await zarr.open(group.resolve(path), { kind: "array" });
        found.push({ path, scale: coordinateTransformations[0].scale, ...(await read(array)) });
    }
}
for (const path of nodes) {
    const node = await zarr.open(path === "" ? group : group.resolve(path));
    found.push({ attributes: node.attrs, ...(node.kind === "array" ? await read(node) : {}) });
}
console.log(JSON.stringify(found));
