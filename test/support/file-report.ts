/**
 * Reporter of one process of `test/run.ts`: prints the report of Node after a file has ended, so
 * that reports of processes do not mix, and failures at the end. If it is stopped before, it prints
 * the running tests.
 */
import { writeSync } from 'node:fs';
import { type TestEvent, spec } from 'node:test/reporters';

export default async function* fileReport(
  events: AsyncIterable<TestEvent>,
): AsyncGenerator<string> {
  const writer = new spec();
  let text = '';
  writer.on('data', (part: string | Buffer) => (text += part.toString()));
  const running = new Set<string>();
  process.once('SIGTERM', () => {
    writeSync(1, `${text}✖ still running, or a hook of it: ${[...running].join(', ')}\n`);
    process.exit(1);
  });
  for await (const event of events) {
    // Files are subtests of the test that runs them; its own events are ignored.
    const { type, data } = event;
    if (data === undefined || !('nesting' in data)) continue;
    // An error outside of a running test fails the process.
    if (type === 'test:diagnostic' && data.message.startsWith('Error: '))
      text += `${data.message}\n`;
    if (data.nesting === 0) continue;
    const { nesting } = data;
    if (type === 'test:dequeue') running.add(data.name);
    if (type === 'test:complete') running.delete(data.name);
    writer.write({ type, data: { ...data, nesting: nesting - 1 } });
    const isEnd = type === 'test:pass' || type === 'test:fail';
    if (nesting !== 1 || !isEnd) continue;
    yield text;
    text = '';
  }
  await new Promise<void>((resolve) => writer.once('end', resolve).end());
  yield text;
}
