import assert from 'node:assert/strict';
import { hash, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { atOnce, decodeBase64, inTurns, joinBytes, sha256InTurns } from './event-loop.ts';

/** Counts the turns of the event loop during `work`. */
async function countTurns<T>(work: () => Promise<T>): Promise<{ result: T; turns: number }> {
  let turns = 0;
  let isDone = false;
  const count = (): void => {
    turns += 1;
    if (!isDone) setImmediate(count);
  };
  setImmediate(count);
  const result = await work();
  isDone = true;
  return { result, turns };
}

test('long base64 is decoded correctly with line breaks, URL letters and without padding', async () => {
  for (const size of [0, 1, 1_572_863, 1_572_864, 1_572_865, 5_000_002]) {
    const bytes = randomBytes(size);
    const text = bytes.toString('base64');
    const spellings = [
      text,
      text.replaceAll(/.{76}/g, '$&\r\n'),
      bytes.toString('base64url'),
      text.replaceAll('=', ''),
    ];
    for (const spelling of spellings) {
      assert.ok((await decodeBase64(`head,${spelling}`, 5)).equals(bytes), String(size));
    }
  }
});

test('decoding does not block the event loop', async () => {
  const text = Buffer.alloc(24_000_000, 7).toString('base64');
  const { turns } = await countTurns(() => decodeBase64(text));
  assert.ok(turns >= 15, `${turns} turns`);
});

test('`inTurns` lets other work run, and returns the same as `atOnce`', async () => {
  const events: string[] = [];
  function* work(): Generator<undefined, number> {
    events.push('first');
    yield;
    events.push('second');
    return 7;
  }
  setImmediate(() => events.push('other'));
  assert.equal(await inTurns(work()), 7);
  assert.deepEqual(events, ['first', 'other', 'second']);
  assert.equal(atOnce(work()), 7);
});

test('`sha256InTurns` returns the hash of all bytes', async () => {
  for (const size of [0, 1, 2_097_152, 5_000_001]) {
    const bytes = randomBytes(size);
    assert.equal(await sha256InTurns(bytes), hash('sha256', bytes, 'hex'));
  }
});

test('pieces are joined in turns', async () => {
  const pieces = [0, 1, 700_000, 64, 2_000_000, 1_048_576, 65_536].map((size) => randomBytes(size));
  const expected = Buffer.concat(pieces);
  const { result, turns } = await countTurns(() =>
    Promise.resolve(joinBytes(pieces, expected.length)),
  );
  assert.ok(result.equals(expected));
  assert.ok(turns >= 2, `${turns} turns`);
});

test('a few bytes are joined at once, and one piece is not copied', () => {
  const [first, second] = [randomBytes(10), randomBytes(20)] as const;
  assert.deepEqual(joinBytes([first, second], 30), Buffer.concat([first, second]));
  assert.equal(joinBytes([first], 10), first);
  assert.deepEqual(joinBytes([], 0), Buffer.alloc(0));
});
