/** A reporter that says how long each file took, as `seconds file`: its tests and what is before them. */
import { relative } from 'node:path';
import type { TestEvent } from 'node:test/reporters';

export default async function* fileTimes(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const times = new Map<string, number>();
  for await (const { type, data } of events) {
    if (type !== 'test:complete' || data.nesting > 0 || data.file === undefined) continue;
    times.set(data.file, (times.get(data.file) ?? 0) + data.details.duration_ms);
  }
  for (const [file, ms] of times) {
    yield `${(ms / 1_000).toFixed(1)} ${relative(process.cwd(), file)}\n`;
  }
}
