// Translates every .wgsl file of a folder for Metal and DirectX 12, beside it: .metal, .5_1.hlsl (FXC), .6_2.hlsl (DXC).
// node tools/translate.mjs NAGA FOLDER, where NAGA is the folder of the npm package naga-wasm.

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [naga, folder] = process.argv.slice(2);
const { parseWgsl, validate, writeHlsl, writeMsl } = await import(pathToFileURL(resolve(naga, "dist/node.js")));

for (const name of readdirSync(folder).filter((name) => name.endsWith(".wgsl"))) {
  const write = (ending, text) => writeFileSync(join(folder, name.replace(/wgsl$/, ending)), text);
  const module = parseWgsl(readFileSync(join(folder, name), "utf8"));
  const info = validate(module);
  write("metal", writeMsl(module, info, { langVersion: [2, 4] }));
  write("5_1.hlsl", writeHlsl(module, info, { shaderModel: "5_1" }));
  write("6_2.hlsl", writeHlsl(module, info, { shaderModel: "6_2" }));
  info.free();
  module.free();
}
