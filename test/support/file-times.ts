/**
 * A reporter of one process of `test/run.ts`: a line of JSON per file with its time, including
 * child processes, and the results of its tests. Tests that neither passed nor failed did not run.
 */
import { inspect } from 'node:util';
import type { TestEvent } from 'node:test/reporters';
import { cpuSeconds } from './cpu-seconds.ts';

export interface FileTimes {
  readonly file: string;
  readonly seconds: number;
  readonly cpuSeconds: number;
  readonly tests: number;
  readonly pass: number;
  readonly fail: number;
  /** Name and error of each failed test, and of failed hooks. */
  readonly failures: readonly string[];
}

const MAX_ERROR_CHARACTERS = 2_000;

/** The error of Node around the one of the test. */
interface FailedTest extends Error {
  readonly failureType?: string;
}

export default async function* fileTimes(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  let before = 0;
  let counts = { tests: 0, pass: 0, fail: 0 };
  let failures: string[] = [];
  for await (const { type, data } of events) {
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    const isSuite = data.details.type === 'suite';
    if (type === 'test:fail') {
      const { cause, failureType } = data.details.error as FailedTest;
      if (failureType !== 'subtestsFailed')
        failures.push(`${data.name}: ${inspect(cause).slice(0, MAX_ERROR_CHARACTERS)}`);
    }
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
      failures,
    };
    yield `${JSON.stringify(times)}\n`;
    before = now;
    counts = { tests: 0, pass: 0, fail: 0 };
    failures = [];
  }
}
