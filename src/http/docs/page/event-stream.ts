/** Reads a stream of server-sent events as they come. */

/** Of one event; streams of more are no events. */
const MAX_EVENT_CHARS = 16 * 1024 * 1024;

/** Yields the `data:` of each event that has one; ends with the stream. */
export async function* dataOfEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      let end = rest.search(/\r?\n\r?\n/);
      while (end !== -1) {
        const data = dataOf(rest.slice(0, end));
        rest = rest.slice(end).replace(/^\r?\n\r?\n/, '');
        if (data !== '') yield data;
        end = rest.search(/\r?\n\r?\n/);
      }
      if (rest.length > MAX_EVENT_CHARS) throw new Error('The stream is not made of events');
    }
  } finally {
    await reader.cancel().catch(() => undefined); // it is over anyway
  }
}

function dataOf(event: string): string {
  return event
    .split(/\r?\n/)
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice(5).trimStart())
    .join('\n');
}
