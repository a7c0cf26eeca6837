import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { after, test } from 'node:test';
import { readUpload } from './request-body.ts';

/**
 * A request with one file of five megabytes, which is more than the buffers of the streams. `end`: the
 * bytes after it; default: none arrive.
 */
function upload(end?: string): IncomingMessage {
  const head = '--edge\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n';
  const body = new Readable({ read: () => undefined });
  for (const piece of [Buffer.from(head), Buffer.alloc(5_000_000)]) body.push(piece);
  if (end !== undefined) for (const piece of [Buffer.from(end), null]) body.push(piece);
  const headers = { 'content-type': 'multipart/form-data; boundary=edge' };
  return Object.assign(body, { headers }) as unknown as IncomingMessage;
}

const directory = mkdtempSync(join(tmpdir(), 'farebox-upload-'));
after(() => rmSync(directory, { recursive: true }));
const WHOLE = '\r\n--edge--\r\n';

test('a file that cannot be written is an error', { timeout: 10_000 }, async () => {
  const limits = { maxFileBytes: 10_000_000, directory: join(directory, 'missing') };
  await assert.rejects(readUpload(upload(WHOLE), limits), { code: 'ENOENT' });
});

test('a body that ends within a file is rejected', { timeout: 10_000 }, async () => {
  const limits = { maxFileBytes: 10_000_000, directory };
  await assert.rejects(readUpload(upload(''), limits), { code: 'INVALID_REQUEST' });
});
