import assert from 'node:assert/strict';
import { suite, test } from 'node:test';

import type { DownloadProgress } from '../engines/embedded/model-download.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { Progress } from './progress.ts';

function at(fraction: number): DownloadProgress {
  return {
    fraction,
    bytesDone: fraction * 640_000_000,
    bytesTotal: 640_000_000,
    bytesPerSecond: 9_500_000,
    secondsLeft: Math.ceil((1 - fraction) * 67),
  };
}

function output(isTTY: boolean, columns?: number) {
  const written: string[] = [];
  const write = (text: string): number => written.push(text);
  return {
    written,
    output: { isTTY, write, draw: write, ...(columns === undefined ? {} : { columns }) },
  };
}

suite('Progress', () => {
  test('`download` redraws one line on a terminal', () => {
    const { written, output: out } = output(true);
    const progress = new Progress(out);
    progress.download('Qwen3 0.6B', at(0.5));
    progress.download('Qwen3 0.6B', at(0.75));
    progress.end('Qwen3 0.6B is ready');
    assert.equal(
      written[0],
      '\r\u001b[2KQwen3 0.6B ████████████░░░░░░░░░░░░ 50 %, 320 MB of 640 MB, 9.5 MB/s, 34 s left',
    );
    assert.ok(written.slice(0, 2).every((text) => text.startsWith('\r') && !text.includes('\n')));
    assert.equal(written.slice(2).join(''), '\r\u001b[2KQwen3 0.6B is ready\n');
  });

  test('`download` truncates the line to the width of the terminal', () => {
    const { written, output: out } = output(true, 30);
    new Progress(out).download('Qwen3 0.6B', at(0.1));
    assert.equal(written[0]!.replace('\r\u001b[2K', '').length, 29);
  });

  test('`download` writes one line per minute without a terminal', () => {
    const { written, output: out } = output(false);
    const clock = new TestClock();
    const progress = new Progress(out, clock);
    for (let step = 0; step <= 100; step += 1) {
      progress.download('model', at(step / 100));
      clock.advance(2_000);
    }
    progress.end('done');
    assert.deepEqual(written, [
      'model: 30 %, 192 MB of 640 MB, 9.5 MB/s, 47 s left\n',
      'model: 60 %, 384 MB of 640 MB, 9.5 MB/s, 27 s left\n',
      'model: 90 %, 576 MB of 640 MB, 9.5 MB/s, 7 s left\n',
      'done\n',
    ]);
  });

  test('`download` omits an unknown total', () => {
    const { written, output: out } = output(true);
    new Progress(out).download('m', {
      fraction: 0,
      bytesDone: 1_500,
      bytesTotal: undefined,
      bytesPerSecond: 900,
      secondsLeft: undefined,
    });
    assert.match(written[0]!, /0 %, 1\.5 kB, 900 B\/s$/);
  });
});
