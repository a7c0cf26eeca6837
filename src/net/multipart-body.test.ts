import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { multipartBody } from './multipart-body.ts';

const folder = mkdtempSync(join(tmpdir(), 'multipart-'));
after(() => rmSync(folder, { recursive: true, force: true }));

async function textOf(body: { open(): AsyncIterable<Buffer> }): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of body.open()) chunks.push(chunk);
  return Buffer.concat(chunks).toString('latin1');
}

test('fields, bytes and slices of files are one body of the stated size, each time it is opened', async () => {
  const path = join(folder, 'sound');
  writeFileSync(path, 'abcdefghij');
  const file = { filename: 'a"b\r\n.mp4', contentType: 'video/mp4' };
  const body = multipartBody('line', [
    { name: 'model', data: 'größer' },
    { name: 'whole', file, data: { path, sizeBytes: 10 } },
    { name: 'piece', file, data: { path, startByte: 2, sizeBytes: 3, head: Buffer.from('RIFF') } },
    { name: 'none', file, data: { path, startByte: 10, sizeBytes: 0 } },
    { name: 'bytes', file, data: Buffer.from([0, 255]) },
  ]);
  const text = await textOf(body);
  assert.equal(text.length, body.sizeBytes);
  assert.equal(await textOf(body), text);
  const form = await new Response(Buffer.from(text, 'latin1'), {
    headers: { 'content-type': 'multipart/form-data; boundary=line' },
  }).formData();
  assert.equal(form.get('model'), 'größer');
  const contentOf = async (name: string): Promise<string> => {
    const value = form.get(name);
    assert.ok(value instanceof File);
    assert.deepEqual([value.name, value.type], ['a_b__.mp4', 'video/mp4']);
    return Buffer.from(await value.arrayBuffer()).toString('latin1');
  };
  assert.equal(await contentOf('whole'), 'abcdefghij');
  assert.equal(await contentOf('piece'), 'RIFFcde');
  assert.equal(await contentOf('none'), '');
  assert.equal(await contentOf('bytes'), '\x00\xff');
});
