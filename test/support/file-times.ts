/**
 * A reporter of one process of `test/run.ts`: a line of JSON per file with its time, including
 * child processes, and the results of its tests. Tests that neither passed nor failed did not run.
 */
import type { TestEvent } from 'node:test/reporters';
import { cpuSeconds } from './cpu-seconds.ts';

export interface FileTimes {
  readonly file: string;
  readonly seconds: number;
  readonly cpuSeconds: number;
  readonly tests: number;
  readonly pass: number;
  readonly fail: number;
}

export default async function* fileTimes(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  let before = 0;
  let counts = { tests: 0, pass: 0, fail: 0 };
  for await (const { type, data } of events) {
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    const isSuite = data.details.type === 'suite';
    if (!isSuite && data.nesting > 1) {
      counts.tests += 1;
      const isRun = data.skip === undefined && data.todo === undefined;
      if (isRun) counts[type === 'test:pass' ? 'pass' : 'fail'] += 1;
    }
    if (!isSuite || data.nesting !== 1) continue;
    const now = cpuSeconds(process.pid);
    const times: FileTimes = {
      file: data.name,
      seconds: data.details.duration_ms / 1_000,
      cpuSeconds: now - before,
      ...counts,
    };
    yield `${JSON.stringify(times)}\n`;
    before = now;
    counts = { tests: 0, pass: 0, fail: 0 };
  }
}
