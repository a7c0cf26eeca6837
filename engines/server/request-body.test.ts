import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { after, test } from 'node:test';
import { until } from '../../test/support/until.ts';
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

test('the file of an upload that ends too early is closed', async () => {
  const limits = { maxFileBytes: 10_000_000, directory };
  await assert.rejects(readUpload(upload(''), limits), { code: 'INVALID_REQUEST' });
  const aborted = upload();
  const reading = readUpload(aborted, limits);
  await until(() => isOpen(), 'the file');
  aborted.destroy(new Error('aborted'));
  await assert.rejects(reading, { code: 'INVALID_REQUEST' });
  await until(() => !isOpen(), 'the end of the file');
});

/** Whether this process has a file of an upload open. */
function isOpen(): boolean {
  const files = readdirSync('/proc/self/fd');
  return files.some((one) => targetOf(`/proc/self/fd/${one}`).startsWith(`${directory}/`));
}

function targetOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    // It was closed meanwhile.
    return '';
  }
}
