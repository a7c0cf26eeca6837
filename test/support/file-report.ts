/**
 * A reporter of one process of `test/run.ts`: what Node's own says of a file, in one piece when the
 * file has ended, so that the processes of a run do not talk across one another; at the end what
 * failed.
 */
import { type TestEvent, spec } from 'node:test/reporters';

export default async function* fileReport(
  events: AsyncIterable<TestEvent>,
): AsyncGenerator<string> {
  const writer = new spec();
  let text = '';
  writer.on('data', (part: string | Buffer) => (text += part.toString()));
  for await (const event of events) {
    // Files are one level down, below the test that takes them; its own events say nothing.
    const { type, data } = event;
    if (data === undefined || !('nesting' in data) || data.nesting === 0) continue;
    const { nesting } = data;
    writer.write({ type, data: { ...data, nesting: nesting - 1 } });
    const isEnd = type === 'test:pass' || type === 'test:fail';
    if (nesting !== 1 || !isEnd) continue;
    yield text;
    text = '';
  }
  await new Promise<void>((resolve) => writer.once('end', resolve).end());
  yield text;
}
