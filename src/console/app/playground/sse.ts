/** Reads server-sent events of a streamed response. */

/** Bounds the memory for a stream that is not made of events. */
const MAX_EVENT_CHARS = 16 * 1024 * 1024;

/** Yields the JSON of each event until `[DONE]` or the end of the stream. */
export async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const events = rest.split(/\r?\n\r?\n/);
      rest = events.pop() ?? '';
      for (const data of events.map(dataOf)) {
        if (data === '[DONE]') return;
        if (data !== '') yield JSON.parse(data);
      }
      if (rest.length > MAX_EVENT_CHARS) throw new Error('The stream is not made of events');
    }
  } finally {
    await reader.cancel().catch(() => undefined); // the result does not matter
  }
}

function dataOf(event: string): string {
  return event
    .split(/\r?\n/)
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice(5).trimStart())
    .join('\n');
}
