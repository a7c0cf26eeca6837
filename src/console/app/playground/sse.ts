/** Reads a stream of events as they come: the `data:` of each, until `[DONE]`. */
import { dataOfEvents } from '../../../http/docs/page/event-stream.ts';

/** Yields each JSON object; ends with the stream. */
export async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator {
  for await (const data of dataOfEvents(body)) {
    if (data === '[DONE]') return;
    yield JSON.parse(data);
  }
}
