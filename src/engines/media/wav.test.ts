import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { audioPieces, quietestCut } from './wav.ts';

/** Loud samples with a silent gap from `quietFrom` to `quietTo` (in samples). */
function loud(samples: number, quietFrom: number, quietTo: number): Buffer {
  const pcm = Buffer.alloc(samples * 2);
  for (let i = 0; i < samples; i += 1) {
    pcm.writeInt16LE(i >= quietFrom && i < quietTo ? 0 : 8_000 * (i % 2 === 0 ? 1 : -1), i * 2);
  }
  return pcm;
}

test('`quietestCut` returns a position in the pause', () => {
  const cut = quietestCut(loud(32_000, 28_000, 29_600), 16_000);
  assert.ok(cut >= 28_000 && cut <= 29_600, String(cut));
});

test('`audioPieces` covers a file without gap or overlap, with a WAV header for each piece', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'wav-'));
  const path = join(folder, 'long.pcm');
  const whole = loud(80_000, 30_000, 31_600);
  writeFileSync(path, whole);
  const pieces = [];
  for await (const piece of audioPieces(path, 2, 1)) pieces.push(piece);
  rmSync(folder, { recursive: true });
  const samples = pieces.map(({ startByte, sizeBytes }) =>
    whole.subarray(startByte, startByte + sizeBytes),
  );
  assert.ok(Buffer.concat(samples).equals(whole));
  assert.ok(pieces[0]!.endMs > 1_875 && pieces[0]!.endMs <= 1_975, 'cut in the pause');
  assert.equal(pieces.at(-1)!.endMs, 5_000);
  for (const { head, sizeBytes } of pieces) {
    assert.deepEqual([head.toString('latin1', 0, 4), head.length], ['RIFF', 44]);
    assert.equal(head.readUInt32LE(40), sizeBytes);
  }
});

test('`audioPieces` reads a file of more than 2 GiB', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'wav-'));
  const path = join(folder, 'day.pcm');
  writeFileSync(path, '');
  truncateSync(path, 2 ** 31 + 3);
  const pieces = audioPieces(path, 600, 1);
  const first = await pieces.next();
  await pieces.return(undefined);
  rmSync(folder, { recursive: true });
  assert.equal(first.value?.startByte, 0);
  assert.ok((first.value?.sizeBytes ?? 0) > 599 * 32_000);
});
