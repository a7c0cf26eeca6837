/** Events in bytes that arrive cut anywhere, and what an engine can cost that sends them drop by drop. */
import assert from 'node:assert/strict';
import { type TestContext, describe, it } from 'node:test';
import { SseEvents } from './sse-events.ts';

/** The data of all events of a stream that arrives in pieces of so many bytes. */
function dataOf(stream: Buffer, pieceBytes: number): string[] {
  const events = new SseEvents();
  const all: string[] = [];
  const take = (data = events.next()): void => {
    for (let one = data; one !== undefined; one = events.next()) {
      all.push(one.bytes.toString('utf8', one.start, one.end));
    }
  };
  for (let at = 0; at < stream.length; at += pieceBytes) {
    assert.ok(events.push(stream.subarray(at, at + pieceBytes)));
    take();
  }
  take(events.finish());
  return all;
}

describe('SseEvents', () => {
  it('finds the same events wherever the chunks are cut', () => {
    const stream = Buffer.from(
      [
        ': a comment\n\ndata: one\n\n',
        'event: word\r\ndata: two\r\n\r\n',
        'data:three\rid: 3\r\r',
        ': before\ndata: first line\ndata: second line\n: after\n\n',
        `data: ${'long '.repeat(100)}\n\n`,
        'data: without its blank line',
      ].join(''),
    );
    const expected = [
      'one',
      'two',
      'three',
      'first line\nsecond line',
      'long '.repeat(100),
      'without its blank line',
    ];
    for (let pieceBytes = 1; pieceBytes <= stream.length; pieceBytes += 1) {
      assert.deepEqual(dataOf(stream, pieceBytes), expected, `cut after each ${pieceBytes}`);
    }
  });

  it('does not change returned data when more bytes arrive', () => {
    const events = new SseEvents();
    events.push(Buffer.from('data: o'));
    events.push(Buffer.from('ne\n\ndata: t'));
    const one = events.next();
    for (const piece of ['wo', '\n', '\n', 'data: three', '\n\n']) {
      while (events.next() !== undefined);
      events.push(Buffer.from(piece));
    }
    assert.equal(one?.bytes.toString('utf8', one.start, one.end), 'one');
  });

  const drips = {
    'one line': () => 'x',
    'lines of a comment': (at: number) => (at % 8 === 7 ? '\n' : ':'),
    'lines of data': (at: number) => 'data:x\n'.charAt(at % 7),
    'lines that end in CR': (at: number) => (at % 8 === 7 ? '\r' : ':'),
  };
  for (const [what, byteAt] of Object.entries(drips)) {
    it(`takes linear time for an event that arrives as ${what}`, (t) => {
      const half = touchedBytes(t, 2_048, byteAt);
      const whole = touchedBytes(t, 4_096, byteAt);
      assert.ok(whole < 3 * half, `${half} bytes for a half, ${whole} for the whole`);
    });
  }

  it('rejects an event above the limit, however it is cut', () => {
    for (const piece of ['data: x\n', ': comment\n', 'no line end']) {
      const events = new SseEvents(1_000);
      let pushed = 0;
      while (events.push(Buffer.from(piece))) {
        assert.equal(events.next(), undefined);
        pushed += piece.length;
        assert.ok(pushed < 1_100, `${pushed} bytes of "${piece}" were taken`);
      }
      assert.ok(pushed > 1_000);
    }
  });
});

/**
 * Number of bytes that are allocated and scanned while an event arrives: its first half at once,
 * then byte by byte.
 */
function touchedBytes(t: TestContext, sizeBytes: number, byteAt: (at: number) => string): number {
  let touched = 0;
  const allocUnsafe = Buffer.allocUnsafe.bind(Buffer);
  const concat = Buffer.concat.bind(Buffer);
  const mocks = [
    t.mock.method(Buffer, 'allocUnsafe', (size: number) => {
      touched += size;
      return allocUnsafe(size);
    }),
    t.mock.method(Buffer, 'concat', (pieces: readonly Buffer[]) => {
      touched += pieces.reduce((sum, piece) => sum + piece.length, 0);
      return concat(pieces);
    }),
    t.mock.method(Buffer.prototype, 'indexOf', function find(this: Buffer, byte: number, from = 0) {
      const found = Uint8Array.prototype.indexOf.call(this, byte, from);
      touched += (found === -1 ? this.length : found) - from;
      return found;
    }),
  ];
  const bytes = Buffer.from(Array.from({ length: sizeBytes }, (_, at) => byteAt(at)).join(''));
  const events = new SseEvents();
  for (let at = 0; at < sizeBytes; at = Math.max(at + 1, sizeBytes / 2)) {
    events.push(bytes.subarray(at, Math.max(at + 1, sizeBytes / 2)));
    assert.equal(events.next(), undefined);
  }
  for (const { mock } of mocks) mock.restore();
  return touched;
}
