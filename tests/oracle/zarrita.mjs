// What zarrita reads of an OME-Zarr image: node zarrita.mjs MODULES FILE-OR-URL
//
// MODULES is the directory node_modules that has zarrita and @zarrita/storage. Prints the levels as JSON: path, scale, type, shape, and the SHA-256 of
// the values in row-major order.

import { createHash } from "node:crypto";
import { pathToFileURL } from "node:url";

const [modules, place] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${modules}/${name}/dist/src/index.js`));
const zarr = await load("zarrita");
const { FetchStore, FileSystemStore } = await load("@zarrita/storage");

const store = place.startsWith("http") ? new FetchStore(place) : new FileSystemStore(place);
const group = await zarr.open(zarr.root(store), { kind: "group" });
const levels = [];
for (const { path, coordinateTransformations } of group.attrs.ome.multiscales[0].datasets) {
    const array = await zarr.open(group.resolve(path), { kind: "array" });
    const { data, shape, stride } = await zarr.get(array);
    const rows = new data.constructor(data.length);
    const index = shape.map(() => 0);
    for (let i = 0; i < rows.length; i++) {
        rows[i] = data[index.reduce((sum, at, axis) => sum + at * stride[axis], 0)];
        for (let axis = shape.length - 1; axis >= 0 && ++index[axis] === shape[axis]; axis--) index[axis] = 0;
    }
    const bytes = new Uint8Array(rows.buffer, rows.byteOffset, rows.byteLength);
    levels.push({ path, scale: coordinateTransformations[0].scale, type: array.dtype, shape, sha256: createHash("sha256").update(bytes).digest("hex") });
}
console.log(JSON.stringify(levels));
