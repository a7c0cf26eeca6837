import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { holdsNoLoop } from '../../test/app/held-loop.ts';
import { call, startWithEngine } from '../../test/app/call.ts';
import { MAX_PARTS, boundariesIn, boundaryOf } from './multipart-boundary.ts';

const MEGABYTE = 1024 * 1024;

describe('the boundary of a multipart body', () => {
  const cases: readonly (readonly [
    contentType: string | undefined,
    boundary: string | undefined,
  ])[] = [
    ['multipart/form-data; boundary=----WebKitFormBoundary7MA', '----WebKitFormBoundary7MA'],
    ['Multipart/Mixed; charset=utf-8; BOUNDARY="a b:c"; x=y', 'a b:c'],
    ['multipart/form-data; boundary=----=_Part_1', '----=_Part_1'],
    [`multipart/form-data; boundary=${'b'.repeat(70)}`, 'b'.repeat(70)],
    [`multipart/form-data; boundary=${'b'.repeat(71)}`, undefined],
    ['multipart/form-data; boundary="ends with a space "', undefined],
    ['multipart/form-data; boundary="a;b"', undefined],
    ['multipart/form-data; boundary=', undefined],
    ['multipart/form-data', undefined],
    ['multipart/', undefined],
    [`multipart/form-data; ${'; '.repeat(1_000)}boundary=x`, undefined],
    ['application/json; boundary=x', undefined],
    [undefined, undefined],
  ];
  for (const [contentType, boundary] of cases) {
    test(`of ${contentType?.slice(0, 60) ?? 'no Content-Type'} is ${boundary?.slice(0, 30) ?? 'undefined'}`, () => {
      assert.equal(boundaryOf(contentType), boundary);
    });
  }

  test('counts at the start of a line and after two dashes only', async () => {
    const body = Buffer.from('--b\r\nb --b\n--b\r\n--c\r\n-b\r\n--b\r\n\r\n--b--\r\n');
    const places = await boundariesIn(body, 'b');
    assert.deepEqual(places, [2, 27, 34]);
    for (const at of places) assert.equal(body.toString('latin1', at - 2, at + 1), '--b');
  });

  test('is found across two slices of the search', async () => {
    const delimiter = '\r\n--boundary';
    for (let start = MEGABYTE - delimiter.length; start <= MEGABYTE; start += 1) {
      const body = Buffer.alloc(MEGABYTE + 100, 'x');
      body.write(delimiter, start);
      assert.deepEqual(await boundariesIn(body, 'boundary'), [start + 4]);
    }
  });

  test('is searched up to the limit of parts', async () => {
    const body = Buffer.from('\r\n--b'.repeat(10 * MAX_PARTS));
    assert.equal((await boundariesIn(body, 'b')).length, MAX_PARTS + 1);
  });
});

describe('forms that are expensive to split', () => {
  /** Each as large as a form of 25 MB may be. */
  const bodies = {
    'the boundary at every byte': 'a'.repeat(24 * MEGABYTE),
    'line ends only': '\r'.repeat(24 * MEGABYTE),
    'nothing but empty parts': '\r\n--a'.repeat(4 * MEGABYTE),
    'parts without a field': `--a\r\n\r\n${'\r\n--a\r\nx: y\r\n\r\nz'.repeat(1.5 * MEGABYTE)}`,
  };

  test('do not block the event loop, with and without a key', async () => {
    const bench = await startWithEngine();
    try {
      const { secret } = await bench.farebox.account('0.000001');
      for (const [name, body] of Object.entries(bodies)) {
        for (const key of [undefined, 'f-1']) {
          const answer = await holdsNoLoop(() =>
            call(bench.farebox, '/audio/transcriptions', {
              secret,
              body,
              headers: {
                'content-type': 'multipart/form-data; boundary=a',
                ...(key === undefined ? {} : { 'idempotency-key': key }),
              },
            }),
          );
          assert.equal(answer.status, 400, `${name}: ${answer.text}`);
        }
      }
    } finally {
      await bench.stop();
    }
  });
});
