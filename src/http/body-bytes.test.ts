import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, test } from 'node:test';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { Fault, type FaultCode } from '../core/faults.ts';
import { codingFor, decoded as decodedWith, encoded } from './body-bytes.ts';

const decoded = (coding: string, body: Buffer, limitBytes: number) =>
  decodedWith(coding, body, limitBytes, () => undefined);

describe('the coding of a response', () => {
  const cases: readonly (readonly [accept: string | undefined, coding: string | undefined])[] = [
    [undefined, undefined],
    ['', undefined],
    ['gzip', 'gzip'],
    ['gzip, deflate, br', 'br'],
    ['gzip;q=1.0, br;q=0.5', 'gzip'],
    ['br;q=0.2, gzip;q=0.8', 'gzip'],
    ['br;q=0.8;gzip', undefined],
    ['gzip;q=0, br;q=0', undefined],
    ['br;q=0, *', 'gzip'],
    ['*;q=0.1', 'br'],
    ['identity, gzip;q=0.5', undefined],
    ['identity;q=0.5, gzip;q=0.5', 'gzip'],
    ['GZIP ; q=0.5', 'gzip'],
    ['x-gzip', 'gzip'],
    ['compress, zstd', undefined],
    ['gzip;q=0.000', undefined],
  ];
  for (const [accept, coding] of cases) {
    test(`${accept ?? 'no header'}: ${coding ?? 'none'}`, () => {
      assert.equal(codingFor(accept), coding);
    });
  }
});

describe('a response body', () => {
  const text = Buffer.from('{"role":"assistant"}'.repeat(2_000));
  for (const coding of ['br', 'gzip'] as const) {
    test(`survives ${coding}, whatever its size and compressibility`, async () => {
      // The last size is the first one that is compressed in another thread.
      for (const size of [1_024, 2_000, 16_384, 16_385]) {
        for (const body of [text.subarray(0, size), randomBytes(size)]) {
          const packed = await encoded(coding, body);
          assert.deepEqual(await decoded(coding, packed, size), body);
          if (body.buffer === text.buffer) assert.ok(packed.length < size / 4);
        }
      }
    });
  }
});

describe('a request body', () => {
  const body = Buffer.from('{"model":"atlas"}'.repeat(50));
  const isFault = (code: FaultCode) => (error: unknown) =>
    error instanceof Fault && error.code === code;

  test('is read in each coding', async () => {
    const codings = {
      gzip: gzipSync,
      'x-gzip': gzipSync,
      deflate: deflateSync,
      br: brotliCompressSync,
    };
    for (const [name, encode] of Object.entries(codings)) {
      assert.deepEqual(await decoded(name.toUpperCase(), encode(body), body.length), body);
    }
    assert.equal(await decoded('identity', body, 1), body);
  });

  test('is limited after decoding', async () => {
    const bomb = gzipSync(Buffer.alloc(50_000_000));
    assert.ok(bomb.length < 50_000);
    await assert.rejects(decoded('gzip', bomb, 1_000_000), isFault('PAYLOAD_TOO_LARGE'));
    await assert.rejects(
      decoded('gzip', gzipSync(body), body.length - 1),
      isFault('PAYLOAD_TOO_LARGE'),
    );
  });

  test('is counted while it is decoded, and decoding stops at the memory limit', async () => {
    const packed = brotliCompressSync(Buffer.alloc(1_000_000));
    const sizes: number[] = [];
    const refusal = new Fault('SERVICE_UNAVAILABLE');
    const decoding = decodedWith('br', packed, 1_000_000, (sizeBytes) => {
      sizes.push(sizeBytes);
      if (sizeBytes > 100_000) throw refusal;
    });
    await assert.rejects(decoding, refusal);
    assert.ok(sizes.length > 3 && (sizes.at(-1) ?? 0) < 150_000, String(sizes));
  });

  test('gets 400 if its coding is wrong, 415 if its coding is unknown', async () => {
    await assert.rejects(decoded('gzip', body, 1_000), isFault('INVALID_REQUEST'));
    await assert.rejects(
      decoded('gzip', gzipSync(body).subarray(0, 20), 1_000),
      isFault('INVALID_REQUEST'),
    );
    for (const name of ['compress', 'gzip, br', 'constructor']) {
      await assert.rejects(decoded(name, body, 1_000), isFault('INVALID_CONTENT_TYPE'));
    }
  });
});
